"""Text of five layouts becomes documents of sentences, or is refused with file and line."""

import bz2
import gzip
import itertools
import json
import lzma

import pytest

from multiberts.pretrain.corpus.documents import (
    FILE_FORMATS,
    Piece,
    PieceCounts,
    check_counts,
    count_documents,
    expand_source,
    read_documents,
    read_lines_of_documents,
)
from multiberts.runs.errors import UserError


def write(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def documents_of(path, source_format):
    return list(read_documents([Piece(str(path), source_format)]))


@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz"])
def test_sentences_layout(tmp_path, name):
    """Only line feeds end lines."""
    text = "\ufeff\nOne. Still one.\r\n  Two \n\n \n\nThree\u2028b\x0cc\nFour"
    found = documents_of(write(tmp_path / name, text), "sentences")
    assert found == [["One. Still one.", "Two"], ["Three\u2028b\x0cc", "Four"]]


WIKI = """<doc id="1" url="u" title="AT&amp;T &quot;Co&quot;">
AT&T "Co"

Mr. Bell founded it. It grew (fast).
History.
It has a history. Really!
</doc>

<doc id="2" url="u" title="Other">
No title line here. Text.
</doc>
<doc id="3" url="u" title="Empty">
Empty

</doc>
"""


@pytest.mark.parametrize("name", ["wiki.txt", "wiki.txt.gz"])
def test_wikiextractor_layout(tmp_path, name):
    assert documents_of(write(tmp_path / name, WIKI), "wikiextractor") == [
        ["Mr. Bell founded it.", "It grew (fast).", "History.", "It has a history.", "Really!"],
        ["No title line here.", "Text."],
    ]


def test_wikiextractor_escapes_are_undone_once(tmp_path):
    """Its last step is `html.escape(text, quote=False)`; `&amp;lt;` is an article that shows `&lt;`."""
    text = "AT&amp;T &lt;br&gt; has 3 &lt; 5. Write &amp;lt; for &quot;less&quot;."
    expected = [["AT&T <br> has 3 < 5.", "Write &lt; for &quot;less&quot;."]]
    wiki = f'<doc id="1" url="u" title="x">\nx\n\n{text}\n\n</doc>\n'
    assert documents_of(write(tmp_path / "wiki", wiki), "wikiextractor") == expected
    record = {"id": "1", "revid": "2", "url": "https://a.b/wiki?curid=1", "title": "x"}
    line = write(tmp_path / "wiki.jsonl", json.dumps({**record, "text": text}))
    assert documents_of(line, "jsonl") == expected


@pytest.mark.parametrize("url", [{}, {"url": "https://a.b/wiki/x"}, {"url": None}])
def test_json_lines_of_other_tools_are_left_as_they_are(tmp_path, url):
    record = {"id": 1, "title": "x", "text": "Write &lt;br&gt; here. Then &amp;."} | url
    path = write(tmp_path / "lines.jsonl", json.dumps(record))
    assert documents_of(path, "jsonl") == [["Write &lt;br&gt; here.", "Then &amp;."]]


WRAPPED = """CHAPTER I

It was a dark night, and the wind
blew over the old stones. Nobody
heard the bell.

"Who is there?" cried a voice
from above.
"""


def test_wrapped_lines_are_joined_to_paragraphs(tmp_path):
    expected = [
        "CHAPTER I",
        "It was a dark night, and the wind blew over the old stones.",
        "Nobody heard the bell.",
        '"Who is there?" cried a voice from above.',
    ]
    assert documents_of(write(tmp_path / "book.txt", WRAPPED), "raw") == [expected]
    wiki = f'<doc id="1" url="u" title="x">\n{WRAPPED}</doc>\n'
    assert documents_of(write(tmp_path / "wiki.txt", wiki), "wikiextractor") == [expected]


@pytest.mark.parametrize(
    "lines",
    [
        # The ends of sentences of other scripts, whole paragraphs, and what begins as other files do.
        ["今天很冷。", "你去哪里？", "他说：“不去。”", "यह घर है।", "أين أنت؟"],
        ["A heading.", "The first paragraph ends here.", "The second one too.", "A list item"],
        *(["RDX is an explosive."], ["BZhania is a village."], ["Rdx2 is another."]),
    ],
)
def test_what_is_a_line_of_raw_text_stays_one(tmp_path, lines):
    assert documents_of(write(tmp_path / "page.txt", "\n".join(lines)), "raw") == [lines]


@pytest.mark.parametrize(
    ("name", "first", "documents"),
    [
        ("gutenberg_litbank25_books.txt.gz", 4, 4),
        ("enwiki_2015_wikiextractor_sample.txt.gz", 200, 200),
        pytest.param("gutenberg_litbank25_books.txt.gz", None, 25, marks=pytest.mark.slow),
        pytest.param("enwiki_2015_wikiextractor_sample.txt.gz", None, 1436, marks=pytest.mark.slow),
    ],
)
def test_real_files_are_told_apart(tmp_path, shared_data, name, first, documents):
    """Books are wrapped, Wikipedia is not: sentences of both have a usual length in words."""
    path = shared_data / "pretrain" / name
    if first is not None:
        end = "</doc>\n"
        text = gzip.decompress(path.read_bytes()).decode()
        path = tmp_path / "first.txt"
        path.write_text(end.join([*text.split(end, first)[:first], ""]))
    found = documents_of(path, "wikiextractor")
    assert len(found) == documents
    lengths = [len(sentence.split()) for document in found for sentence in document]
    assert 15 < sum(lengths) / len(lengths) < 25


def check_sources(paths, source_format):
    pieces = [Piece(str(path), source_format) for path in paths]
    counts = [count_documents(read_lines_of_documents(piece), source_format) for piece in pieces]
    check_counts(pieces, counts)


def refuse(paths, source_format):
    with pytest.raises(UserError) as error:
        check_sources(paths, source_format)
    return str(error.value)


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"
PACKED = {
    "packed with bzip2": bz2.compress(b"some text\n"),
    "packed with xz": lzma.compress(b"some text\n"),
    "a pointer of Git LFS": LFS,
    "a web archive": gzip.compress(b"WARC/1.0\r\nWARC-Type: warcinfo\r\n"),
}
# By format: what a file holds, and what is said of it.
REFUSED = {
    "raw": [
        # Characters that the tokeniser drops are not text.
        ("\u200b\n\n\x01\n".encode(), "holds no text"),
        (gzip.compress(b"some text\n" * 1000)[:-20], "{path} is not a whole gzip file"),
    ],
    "sentences": [
        (b"", "{path} is empty"),
        (b"\n \n", "holds no text"),
        (b"good\nb\xffd\n", "{path} line 2: byte 0xff at offset 6 is not UTF-8"),
        (b"\xef\xbb\xbf\xff", "{path} line 1: byte 0xff at offset 3 is not UTF-8"),
        (b"a\n\n\xc3", "{path} line 3: byte 0xc3 at offset 3 is not UTF-8"),
    ],
    "wikiextractor": [
        (b"plain text\n", "{path} line 1: found 'plain text' outside a document"),
        (b'<doc id="1" title="a">\nx\n', "{path} line 1: the document that starts here has no </d"),
        (b'<doc id="1">\nx\n<doc id="2">\n', "{path} line 3: found <doc ...> inside"),
        (b"</doc>\n", "{path} line 1: found '</doc>' outside"),
    ],
    "jsonl": [
        (
            b'{"text": "a"}\n{"text": \n',
            "{path} line 2: found '{{\"text\": ', which is not whole JSON",
        ),
        (
            b'{"body": "a", "id": 1}\n',
            "{path} line 1: found fields body, id, expected text in the f",
        ),
        (
            b'{"text": "a"}\n{"text": null}\n',
            "{path} line 2: found null, expected text in the field",
        ),
        (b'{"text": ["a", "b"]}\n', '{path} line 1: found ["a", "b"], expected text'),
        (b"[1]\n", "{path} line 1: found '[1]', expected text in the field 'text'; write its rows"),
    ],
}


@pytest.mark.parametrize("source_format", FILE_FORMATS)
def test_what_is_no_text_of_a_format_is_refused_with_line_and_byte(tmp_path, source_format):
    packed = [(content, f"{{path}} is {kind}") for kind, content in PACKED.items()]
    for number, (content, message) in enumerate([*REFUSED.get(source_format, ()), *packed]):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(content)
        assert message.format(path=path) in refuse([path], source_format)
    assert set(FILE_FORMATS) == {*SAMPLES, "raw"}  # which all tests of formats go through


def test_what_is_no_file_or_has_the_wrong_ending_is_refused(tmp_path):
    assert "absent.txt does not exist" in refuse([tmp_path / "absent.txt"], "raw")
    assert "cannot read" in refuse([tmp_path], "raw")
    (tmp_path / "plain.txt.gz").write_bytes(b"plain text")
    assert "not a whole gzip file" in refuse([tmp_path / "plain.txt.gz"], "raw")


def test_blank_lines_between_sentences_are_refused(tmp_path):
    path = write(tmp_path / "text.txt", "One.\n\nTwo.\n\nThree.\n")
    assert "3 of 3 documents have one sentence" in refuse([path], "sentences")
    # A few blank lines in the right place do not hide them; a few short documents are not a fault.
    mostly = write(tmp_path / "mostly.txt", "One.\nTwo.\n\n" + "Three.\n\n" * 19)
    assert "19 of 20 documents have one sentence" in refuse([mostly], "sentences")
    some = write(tmp_path / "some.txt", "One.\nTwo.\n\n" * 2 + "Three.\n\n" * 8)
    check_sources([some], "sentences")
    # Nor is one short file: the last file of an extracted Wikipedia may hold one stub or two.
    article, stub = ("<doc>\nOne here. Two here.\n</doc>\n", "<doc>\nA stub.\n</doc>\n")
    files = {"wiki_00": article * 2, "wiki_01": stub * 2}
    check_sources([write(tmp_path / name, text) for name, text in files.items()], "wikiextractor")
    # One document, of which no other can be the random next, is too few.
    path = write(tmp_path / "one.txt", "One.\nTwo.\n")
    assert "found 1 document" in refuse([path], "sentences")
    check_sources([path, path], "sentences")


def tweets(texts, source_format):
    """Returns texts in a layout, as files."""
    wiki = '<doc id="1" url="u" title="t">\n{}\n</doc>\n'
    return {
        "jsonl": ["".join(json.dumps({"text": text}) + "\n" for text in texts)],
        "blank_lines": ["\n\n".join(texts)],
        "wikiextractor": ["".join(wiki.format(text) for text in texts)],
        "raw": texts,
    }[source_format]


@pytest.mark.parametrize("source_format", ["jsonl", "blank_lines", "wikiextractor", "raw"])
def test_documents_of_one_sentence_are_refused_in_every_layout(tmp_path, source_format):
    """Counted after cutting: what has no marks of sentence ends, such as Thai, is one sentence, too."""

    def files(texts):
        layout = tweets(texts, source_format)
        return [write(tmp_path / f"{number}", text) for number, text in enumerate(layout)]

    lone = ["Just landed in Rome!", "ประเทศไทยเป็นประเทศ ตั้งอยู่ในเอเชีย", "今天很冷。"] * 7
    message = refuse(files([*lone, "One here. Two here."]), source_format)
    assert "21 of 22 documents have one sentence, expected documents of several" in message
    assert "source_format 'sentences'" in message
    assert ("0 and 21 more: " in message) == (source_format == "raw")
    # The cures: texts put together, or one in ten with several sentences.
    check_sources(files([". ".join(lone[:3]), "今天很冷。明天不冷。"]), source_format)
    check_sources(files([*lone[:18], "One here. Two here.", "今天很冷。明天不冷。"]), source_format)


@pytest.mark.parametrize(
    ("source_format", "cure"), [("store", "prepare these anew"), ("tfds", "join short texts")]
)
def test_stores_and_datasets_of_lone_sentences_are_refused(source_format, cure):
    piece = Piece("tweets", source_format)
    with pytest.raises(UserError, match=f"tweets: 19 of 20 documents have one sentence.*{cure}"):
        check_counts([piece], [PieceCounts(20, 20, 1)])
    check_counts([piece], [PieceCounts(20, 20, 2)])


JSON_LINES = """{"id": 1, "text": "One here. Two.\\nThree"}

{"text": ""}
{"text": "Caf\\u00e9 \\ud83d. Yes \\ud83d\\ude00!"}
"""


@pytest.mark.parametrize("name", ["lines.jsonl", "lines.jsonl.gz"])
def test_json_lines(tmp_path, name):
    # Half of a surrogate pair is not a character; the tokeniser drops U+FFFD.
    expected = [["One here.", "Two.", "Three"], ["Café \ufffd.", "Yes \U0001f600!"]]
    path = write(tmp_path / name, "\ufeff" + JSON_LINES)
    assert documents_of(path, "jsonl") == expected
    other = write(tmp_path / name, JSON_LINES.replace('"text"', '"body"'))
    assert list(read_documents([Piece(str(other), "jsonl")], "body")) == expected


def test_blank_lines_layout_is_cut_into_sentences(tmp_path):
    path = write(tmp_path / "text.txt", "One. Two.\nThree.\n\n\nFour\nfive. Six")
    assert documents_of(path, "blank_lines") == [["One.", "Two.", "Three."], ["Four five.", "Six"]]


def test_patterns_stand_for_files_in_order(tmp_path):
    for name in ("b/wiki_00", "a/wiki_01", "a/wiki_00"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, "x")
    found = [*expand_source(str(tmp_path / "**" / "wiki_*")), *expand_source("other.txt")]
    names = ["a/wiki_00", "a/wiki_01", "b/wiki_00"]
    assert found == [*(str(tmp_path / name) for name in names), "other.txt"]
    with pytest.raises(UserError, match="no file fits the pattern"):
        expand_source(str(tmp_path / "*.txt"))


SAMPLES = {
    "sentences": "\ufeffA é.\nB.\n\n \nC.\r\n\r\n\n" + "D d.\nE.\n\n" * 3 + "F.",
    "blank_lines": "\n\nA é. B.\n\n\nC.\n\u3000\nD.\n\n" * 2,
    "wikiextractor": "\n" + WIKI * 2,
    "jsonl": JSON_LINES * 2 + '{"text": "No line feed at the end."}',
}


@pytest.mark.parametrize("source_format", SAMPLES)
def test_pieces_hold_each_document_once_wherever_the_cuts_fall(tmp_path, source_format):
    path = write(tmp_path / "text", SAMPLES[source_format])
    size = path.stat().st_size

    def texts(piece):
        documents = read_lines_of_documents(piece)
        return [lines for lines in documents if any(line.strip() for line in lines)]

    whole = texts(Piece(str(path), source_format))
    assert len(whole) >= 4
    for cut in range(1, size + 1):
        first, second = (Piece(str(path), source_format, *ends) for ends in ((0, cut), (cut, None)))
        assert texts(first) + texts(second) == whole, cut
    for width in (1, 2, 7, 30):
        cuts = [*range(0, size, width), None]
        pieces = [Piece(str(path), source_format, *pair) for pair in itertools.pairwise(cuts)]
        assert [text for piece in pieces for text in texts(piece)] == whole, width


def test_places_in_messages_are_counted_from_the_start_of_the_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"a\n\nb\n\n" + b"c\xffd\n")
    with pytest.raises(UserError, match=r"line 5: byte 0xff at offset 7 "):
        list(read_lines_of_documents(Piece(str(path), "sentences", 5)))
