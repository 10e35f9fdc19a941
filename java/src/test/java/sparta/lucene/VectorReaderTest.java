package sparta.lucene;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import sparta.lucene.util.Packed;
import sparta.lucene.util.StringTable;

class VectorReaderTest {
  /** What an answer says, with the terms of all answers before it. */
  private static List<String> answer(VectorReader reader, List<String> known, String... lines) {
    ByteBuffer in = Packed.reader(reader.read(StringTable.of(lines)));
    int n = Packed.ints(in, 1, "n")[0];
    int[] begins = Packed.ints(in, n, "begins");
    int[] ends = Packed.ints(in, n, "ends");
    int[] indptr = Packed.ints(in, n + 1, "indptr");
    int zeros = Packed.ints(in, 1, "zeros")[0];
    int[] terms = Packed.ints(in, indptr[n], "terms");
    int[] impacts = Packed.ints(in, indptr[n], "impacts");
    StringTable.unpack(in, "new terms").forEach(term -> known.add(term.utf8ToString()));
    List<String> found = new ArrayList<>();
    for (int i = 0; i < n; i++) {
      StringBuilder line = new StringBuilder(begins[i] < 0 ? "-" : utf8Part(lines[i], begins[i], ends[i]));
      for (int j = indptr[i]; j < indptr[i + 1]; j++) {
        line.append(' ').append(known.get(terms[j])).append('=').append(impacts[j]);
      }
      found.add(line.toString());
    }
    found.add("zeros " + zeros);
    return found;
  }

  private static String utf8Part(String line, int begin, int end) {
    return new String(line.getBytes(StandardCharsets.UTF_8), begin, end - begin, StandardCharsets.UTF_8);
  }

  @Test
  void readsVectorsAndNumbersTermsAsTheyCome() {
    VectorReader reader = new VectorReader();
    List<String> known = new ArrayList<>();
    List<String> found =
        answer(
            reader,
            known,
            "{\"contents\":\"größe\",\"vector\":{\"a\":1,\"ü\":2}}",
            "{\"vector\":{} , \"id\":[{\"vector\":{\"x\":\"}\"}}]}",
            " {\"vector\" : { \"\\u0061\" : 65535 } }",
            "{\"vector\":{\"b\":0}}");
    assertEquals(
        List.of("{\"a\":1,\"ü\":2} a=1 ü=2", "{}", "{ \"\\u0061\" : 65535 } a=65535", "{\"b\":0}", "zeros 1"), found);
    assertEquals(List.of("a", "ü", "b"), known);
    assertEquals(List.of("{\"c\":5,\"b\":4} c=5 b=4", "zeros 0"), answer(reader, known, "{\"vector\":{\"c\":5,\"b\":4}}"));
    assertEquals(List.of("a", "ü", "b", "c"), known);
  }

  @Test
  void leavesALineThatItDoesNotUnderstandWithoutPostings() {
    String[] lines = {
      "{\"vector\":{\"a\":0,\"b\":7,\"c\":1.5}}",
      "{\"vector\":{\"a\":1,\"a\":2}}",
      "{\"vector\":{\"a\":1},\"vector\":{\"a\":2}}",
      "{\"vector\":{\"a\":65536}}",
      "{\"vector\":{\"a\":-1}}",
      "{\"vector\":{\"\":1}}",
      "{\"vector\":{\"" + "x".repeat(256) + "\":1}}",
      "{\"vector\":{\"\\ud800\":1}}",
      "{\"vector\":[1]}",
      "{\"no vector\":{}}",
      "[]",
      "",
      "{\"vector\":{\"a\":1}",
      "{\"vector\":{\"a\":1",
      "{\"vector\":{\"a",
      "{\"vector\":{\"\\u00",
      "{\"contents\":\"\\",
    };
    List<String> expected = new ArrayList<>();
    for (int i = 0; i < lines.length; i++) {
      expected.add("-");
    }
    expected.add("zeros 0");
    assertEquals(expected, answer(new VectorReader(), new ArrayList<>(), lines));
  }

  /** Bytes at random never lead outside the line, and never to postings without a vector's place. */
  @Test
  void survivesAnyBytes() {
    Random random = new Random(1);
    String alphabet = "{}[]\":,\\ u0123abvector\u0001ü";
    VectorReader reader = new VectorReader();
    List<String> known = new ArrayList<>();
    for (int round = 0; round < 20_000; round++) {
      StringBuilder line = new StringBuilder(random.nextBoolean() ? "{\"vector\":{\"a\":1" : "{");
      for (int i = random.nextInt(12); i > 0; i--) {
        line.append(alphabet.charAt(random.nextInt(alphabet.length())));
      }
      String found = answer(reader, known, line.toString(), "{\"vector\":{\"z\":9}}").get(1);
      assertEquals("{\"z\":9} z=9", found);
    }
    assertTrue(known.contains("z"));
  }
}
