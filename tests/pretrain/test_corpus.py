"""Text of three layouts becomes documents of sentences, or is refused with file and line."""

import gzip

import pytest

from pretrain.corpus import check_sources, read_documents, split_sentences
from runs.errors import UserError


def write(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def documents_of(path, source_format):
    return list(read_documents([path], source_format))


@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz"])
def test_sentences_layout(tmp_path, name):
    path = write(tmp_path / name, "\ufeff\nOne. Still one.\r\n  Two \n\n \n\nThree\nFour")
    assert documents_of(path, "sentences") == [["One. Still one.", "Two"], ["Three", "Four"]]


def test_only_line_feeds_end_lines(tmp_path):
    path = write(tmp_path / "text.txt", "a\u2028b\x0cc\nd\n")
    assert documents_of(path, "sentences") == [["a\u2028b\x0cc", "d"]]


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


def test_whole_paragraphs_a_line_stay_apart(tmp_path):
    text = "A heading.\nThe first paragraph ends here.\nThe second one too.\nA list item\n"
    assert documents_of(write(tmp_path / "page.txt", text), "raw") == [
        ["A heading.", "The first paragraph ends here.", "The second one too.", "A list item"]
    ]


def test_real_files_are_told_apart(shared_data):
    """Books are wrapped, Wikipedia is not: sentences of both have a usual length in words."""
    for name, documents, words in (
        ("gutenberg_litbank25_books.txt.gz", 25, (15, 25)),
        ("enwiki_2015_wikiextractor_sample.txt.gz", 1436, (15, 25)),
    ):
        found = documents_of(shared_data / "pretrain" / name, "wikiextractor")
        assert len(found) == documents
        lengths = [len(sentence.split()) for document in found for sentence in document]
        assert words[0] < sum(lengths) / len(lengths) < words[1]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Oak met Dr. Johnson.", "They spoke."],
        ["He was born on St. Helena.", "He left."],
        ["The U.S. Army came.", "It left the U.S.", "The war ended."],
        ["J. R. R. Tolkien wrote it.", "So did I.", "You too?"],
        ["See No. 5 and Fig. 3.", "He said no.", "They left in Jan. 1900."],
        ['"Who?" he said.', '"Me!"', "He ran."],
        ["It costs 3.50 dollars.", "2 of them were sold."],
        ["1. Introduction to it.", "It begins..."],
        ["What?!", "(Really.)", "Yes."],
        ["Wait… The end."[:5], "The end."],
        ["École est là.", "Être ou non."],
        ["He likes it, e.g. in spring.", "It ended ca. 1900."],
    ],
)
def test_sentences_are_cut_where_a_reader_would(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


def test_splitting_loses_nothing():
    text = 'A b.  C!" d "E? F." 5 g. Mr. H. I.\tJ… K'
    assert " ".join(split_sentences(text)) == " ".join(text.split())
    assert split_sentences(" \n ") == []


def refuse(paths, source_format):
    with pytest.raises(UserError) as error:
        check_sources(paths, source_format)
    return str(error.value)


def test_missing_empty_and_blank_files_are_refused(tmp_path):
    assert "absent.txt does not exist" in refuse([tmp_path / "absent.txt"], "raw")
    assert "empty.txt is empty" in refuse([write(tmp_path / "empty.txt", "")], "sentences")
    assert "holds no text" in refuse([write(tmp_path / "blank.txt", "\n \n")], "sentences")
    # Characters that the tokeniser drops are no text either.
    assert "holds no text" in refuse([write(tmp_path / "control.txt", "\u200b\n\n\x01\n")], "raw")
    assert "cannot read" in refuse([tmp_path], "raw")


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"good\nb\xffd\n", "line 2: byte 0xff at offset 6"),
        (b"\xef\xbb\xbf\xff", "line 1: byte 0xff at offset 3"),
        (b"a\n\n\xc3", "line 3: byte 0xc3 at offset 3"),
    ],
)
def test_other_encodings_are_refused_with_line_and_byte(tmp_path, content, place):
    path = tmp_path / "latin.txt"
    path.write_bytes(content)
    message = refuse([path], "sentences")
    assert f"{path} {place} is not UTF-8" in message


def test_damaged_gzip_is_refused(tmp_path):
    path = tmp_path / "cut.txt.gz"
    path.write_bytes(gzip.compress(b"some text\n" * 1000)[:-20])
    assert "not a whole gzip file" in refuse([path], "raw")
    path.write_bytes(b"plain text")
    assert "not a whole gzip file" in refuse([path], "raw")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plain text\n", "line 1: found 'plain text' outside a document"),
        ('<doc id="1" title="a">\nx\n', "line 1: the document that starts here has no </doc>"),
        ('<doc id="1" title="a">\nx\n<doc id="2" title="b">\n', "line 3: found <doc ...> inside"),
        ("</doc>\n", "line 1: found '</doc>' outside"),
    ],
)
def test_other_layouts_are_refused_with_line(tmp_path, text, message):
    path = write(tmp_path / "wiki.txt", text)
    assert f"{path} {message}" in refuse([path], "wikiextractor")


def test_blank_lines_between_sentences_are_refused(tmp_path):
    path = write(tmp_path / "text.txt", "One.\n\nTwo.\n\nThree.\n")
    assert "3 documents of one sentence each" in refuse([path], "sentences")


def test_one_document_is_too_few(tmp_path):
    path = write(tmp_path / "text.txt", "One.\nTwo.\n")
    assert "found 1 document" in refuse([path], "sentences")
    check_sources([path, path], "sentences")
