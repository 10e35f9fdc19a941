"""Twenty passages in Chinese, in both its scripts, with questions in the other one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

RECORDS: list[dict[str, Any]] = [
    {
        "id": "changjiang",
        "title": "长江",
        "text": "长江是亚洲最长的河流，全长约六千三百公里。它发源于青藏高原，在上海附近流入东海。",
    },
    {
        "id": "huanghe",
        "title": "黃河",
        "text": "黃河是中國第二長的河流。河水含有大量泥沙，所以呈黃色，最後注入渤海。",
    },
    {
        "id": "everest",
        "title": "珠穆朗玛峰",
        "text": "珠穆朗玛峰是世界最高的山峰，海拔约8848米，位于中国与尼泊尔的边界。",
    },
    {
        "id": "gugong",
        "title": "故宮",
        "text": "北京故宮是明清兩代的皇宮，始建於明成祖永樂年間，一九八七年列入世界遺產。",
    },
    {"id": "beijing", "title": "北京", "text": "北京是中国的首都，二〇〇八年举办了夏季奥林匹克运动会。"},
    {
        "id": "taipei101",
        "title": "臺北101",
        "text": "臺北101是臺灣的一座摩天大樓，高508公尺，二〇〇四年落成時是世界最高的建築。",
    },
    {
        "id": "kongzi",
        "title": "孔子",
        "text": "孔子是春秋时期的思想家和教育家，儒家学派的创始人。他的言行由弟子编成《论语》。",
    },
    {"id": "libai", "title": "李白", "text": "李白是唐代詩人，被稱為「詩仙」，與杜甫並稱「李杜」。"},
    {
        "id": "honglou",
        "title": "红楼梦",
        "text": "《红楼梦》是清代作家曹雪芹创作的长篇小说，又名《石头记》。",
    },
    {
        "id": "zaozhi",
        "title": "造紙術",
        "text": "東漢的蔡倫改進了造紙術，用樹皮、破布和漁網造紙，紙從此便宜而好用。",
    },
    {
        "id": "zuchongzhi",
        "title": "祖冲之",
        "text": "南北朝时期的数学家祖冲之把圆周率计算到小数点后第七位。",
    },
    {
        "id": "bingmayong",
        "title": "兵馬俑",
        "text": "兵馬俑是秦始皇陵的陪葬坑，一九七四年由陝西臨潼的農民打井時發現。",
    },
    {
        "id": "panda",
        "title": "大熊猫",
        "text": "大熊猫主要以竹子为食，生活在四川、陕西和甘肃的山区。",
    },
    {
        "id": "photosynthesis",
        "title": "光合作用",
        "text": "光合作用是植物利用陽光，把二氧化碳和水轉化為有機物並釋放氧氣的過程。",
    },
    {"id": "newton", "title": "牛顿", "text": "英国物理学家牛顿提出了万有引力定律和三大运动定律。"},
    {
        "id": "curie",
        "title": "居里夫人",
        "text": "居里夫人發現了釙和鐳兩種元素，是第一位獲得兩次諾貝爾獎的人。",
    },
    {
        "id": "moon",
        "title": "月球",
        "text": "月球是地球唯一的天然卫星。一九六九年，阿姆斯特朗成为第一个踏上月球的人。",
    },
    {
        "id": "jupiter",
        "title": "木星",
        "text": "木星是太陽系中體積最大的行星，主要由氫和氦組成。",
        "lang": "zh-Hant",
    },
    {"id": "dna", "title": "DNA", "text": "沃森和克里克在1953年提出了DNA的双螺旋结构。", "lang": "zh-Hans"},
    {
        "id": "tuyouyou",
        "title": "屠呦呦",
        "text": "屠呦呦因發現能治療瘧疾的青蒿素，二〇一五年獲得諾貝爾生理學或醫學獎。",
    },
]

QUESTIONS: list[tuple[str, str, str]] = [
    ("亞洲最長的河流是哪一條？", "changjiang", "長江"),
    ("黄河最后注入哪个海？", "huanghe", "渤海"),
    ("世界最高的山峰海拔多少？", "everest", "8848米"),
    ("故宫始建于什么时候？", "gugong", "永乐年间"),
    ("中國的首都在哪裡？", "beijing", "北京"),
    ("誰創作了《紅樓夢》？", "honglou", "曹雪芹"),
    ("谁改进了造纸术？", "zaozhi", "蔡伦"),
    ("誰把圓周率計算到小數點後第七位？", "zuchongzhi", "祖沖之"),
    ("大熊貓以什麼為食？", "panda", "竹子"),
    ("谁发现了镭？", "curie", "居里夫人"),
    ("太阳系中最大的行星是哪一颗？", "jupiter", "木星"),
    ("誰提出了DNA的雙螺旋結構？", "dna", "沃森和克里克"),
]
"""A question, the passage that answers it, and its answer, in the other script than the passage's."""

WORDS = ["中国", "首都", "北京", "世界", "最高", "河流", "发现", "元素", "提出", "结构"]


def save_model(make_tiny_model: Callable[..., Any], folder: Path) -> Path:
    """A model that knows simplified characters and some words, with random weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    from sparta.base.records import Passage
    from sparta.data.languages import simplified
    from sparta.models.document_encoder import fit_quantizer

    texts = [simplified(record["title"] + record["text"]) for record in RECORDS]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = dict.fromkeys([*special, *WORDS, *"".join(texts), *simplified("哪裡誰麼")])
    ids = {piece: n for n, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", continuing_subword_prefix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(name, ids[name]) for name in ("[CLS]", "[SEP]")]
    )
    model = make_tiny_model(tokenizer=tokenizer)
    passages = [Passage(str(n), text) for n, text in enumerate(texts)]
    model.config = replace(model.config, quantizer=fit_quantizer(model, passages))
    model.save_pretrained(folder)
    return folder
