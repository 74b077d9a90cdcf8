from __future__ import annotations

from mainstem.analysis.page import html


def test_a_document_holds_its_parts_and_escapes_every_text() -> None:
    written = html.document("<t>", "<l>", ["<v>"], ["<p>part</p>", ""], is_bad=True, footer="<f>")
    for text in ("&lt;t&gt;", "&lt;l&gt;", "<li>&lt;v&gt;</li>", "<p>part</p>", "&lt;f&gt;", "verdict bad"):
        assert text in written
    for reference in ("<script", '<link rel="stylesheet', "<img", "@import", "url("):
        assert reference not in written


def test_a_section_without_content_is_left_out() -> None:
    assert html.section("Losses", "", "") == ""
    assert html.section("<i>", "x", lead="&") == "<section><h2>&lt;i&gt;</h2><p>&amp;</p>x</section>"


def test_cells_carry_the_name_of_their_column_for_narrow_screens() -> None:
    table = html.table(("channel", 'a"b'), [("x", "1")])
    assert '<td class="text" data-name="channel">x</td><td data-name="a&quot;b">1</td>' in table


def test_figures_and_pairs_have_titles() -> None:
    assert html.figures([html.figure("T", "<svg/>", "L")]) == (
        '<div class="charts"><div><h3>T</h3><p>L</p><svg/></div></div>'
    )
    assert html.pairs([("lost", "<0>")]) == '<dl class="pairs"><div><dt>lost</dt><dd>&lt;0&gt;</dd></div></dl>'
