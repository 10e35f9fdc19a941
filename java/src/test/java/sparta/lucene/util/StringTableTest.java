package sparta.lucene.util;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;

class StringTableTest {
  @Test
  void givesBackWhatWasPacked() {
    List<String> strings = List.of("", "a", "größer", "東京", "\uD83D\uDE00", "");
    StringTable table = StringTable.unpack(StringTable.of(strings.toArray(String[]::new)), "strings");
    assertEquals(strings.size(), table.size());
    for (int i = 0; i < strings.size(); i++) {
      assertEquals(strings.get(i), table.string(i));
      assertEquals(strings.get(i), table.bytes(i).utf8ToString());
    }
  }

  @Test
  void hasTheStatedLayout() {
    byte[] expected = {2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 'a', 'b', 'c'};
    assertArrayEquals(expected, StringTable.of("a", "bc"));
  }

  @Test
  void refusesTablesThatContradictThemselves() {
    byte[][] wrong = {
      {},
      {1, 0, 0},
      {-1, -1, -1, -1},
      {-1, -1, -1, 127},
      {1, 0, 0, 0, 0, 0, 0, 0},
      {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 'a'},
      {1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 'a'},
      {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'a'},
      {2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 'a'},
    };
    for (byte[] data : wrong) {
      assertThrows(IllegalArgumentException.class, () -> StringTable.unpack(data, "strings"));
    }
  }
}
