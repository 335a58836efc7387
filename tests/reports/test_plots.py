"""Pictures: that they say what they show, and that nothing overlaps or leaves the paper."""

import itertools
import math
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shoal import Choice, Flags, Survey, plan
from shoal.errors import InputError
from shoal.planning.certificate import certify
from shoal.reports.plots import (
    plot_bounds,
    plot_noise,
    plot_picture,
    plot_precision,
    plot_privacy,
    plot_ratio,
    save,
)
from shoal.theory.domains import at_most, choice, flags
from shoal.theory.literature_bounds import published_delta, published_q
from shoal.theory.randomized_response import local_q

matplotlib = pytest.importorskip("matplotlib")

FIVE = Survey("browser", (Flags("features", tuple("abcde")),))
ONE = Survey("yes or no", (Flags("answer", ("yes",)),))
SITES = Survey("site", (Choice("site", tuple(f"s{i}" for i in range(20))),))
SIZES = [100, 1000, 10_000]


@pytest.fixture(scope="module")
def five_plan():
    return plan(FIVE, crowd_size=10_000, epsilon=1, delta="1e-6")


SDP = partial(certify, FIVE, q="0.1778", crowd_size=5000)
SMALL = partial(certify, ONE, q="0.25", crowd_size=10)
MANY = partial(certify, SITES, q="0.0748", crowd_size=10_000)
CLOSE = partial(certify, FIVE, q="0.4", crowd_size=300)
DRAWN = {
    "privacy": lambda five_plan: plot_privacy(five_plan, points=12),
    "privacy, one bit": lambda _: plot_privacy(SMALL(), epsilon=0.5, points=12),
    "privacy, sites": lambda _: plot_privacy(MANY(), epsilon=0.6931, points=12),
    "ratio": plot_ratio,
    "ratio, SDP's row": lambda _: plot_ratio(SDP(), epsilon=math.log(2)),
    "precision": plot_precision,
    "precision, close": lambda _: plot_precision(CLOSE(), epsilon=1),
    "precision, low": lambda _: plot_precision(MANY(), epsilon=3),
    "noise": lambda _: plot_noise(FIVE, epsilon=1, delta=1e-6, crowd_sizes=SIZES),
    "noise, sites": lambda _: plot_noise(SITES, epsilon=0.5, delta=1e-8, crowd_sizes=SIZES),
    "bounds": lambda _: plot_bounds(FIVE, epsilon=1, delta=1e-6, crowd_sizes=SIZES),
    "bounds, sites": lambda _: plot_bounds(SITES, epsilon=1, delta=1e-6, crowd_sizes=SIZES),
}


class LazyPictures(dict[str, Any]):
    """Draws a picture when it is first looked at."""

    def __init__(self, five_plan):
        self.five_plan = five_plan

    def __missing__(self, name):
        return self.setdefault(name, DRAWN[name](self.five_plan))


@pytest.fixture(scope="module")
def figures(five_plan):
    return LazyPictures(five_plan)


def texts(figure):
    inside = [text for axes in figure.axes for text in axes.texts]
    inside += [text for axes in figure.axes if (made := axes.get_legend()) for text in made.texts]
    return [text for text in [*figure.texts, *inside] if text.get_text()]


def words(figure):
    return "\n".join(text.get_text() for text in texts(figure))


@pytest.mark.slow
def test_no_texts_overlap_or_leave_the_paper(figures):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    for name in DRAWN:
        figure = figures[name]
        axes = figure.axes[0]
        assert min(len(axes.get_xlabel()), len(axes.get_ylabel())) > 15, name
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        paper = figure.bbox
        boxes = []
        for text in texts(figure):
            # the text itself, without the line that leads from it
            box = matplotlib.text.Text.get_window_extent(text, renderer)
            assert box.x0 >= 0, (name, text)
            assert box.x1 <= paper.width, (name, text)
            assert box.y0 >= 0, (name, text)
            assert box.y1 <= paper.height, (name, text)
            boxes.append((text.get_text(), box))
        for i, (first, one) in enumerate(boxes):
            for second, other in boxes[:i]:
                assert not one.overlaps(other), (name, first, second)


@pytest.mark.slow
def test_lines_differ_without_colour(figures):
    for name in ("noise", "bounds"):
        styles = {
            (str(line._dash_pattern), line.get_marker()) for line in figures[name].axes[0].lines
        }
        assert len(styles) == len(figures[name].axes[0].lines)


def test_privacy_marks_the_promise(figures, five_plan):
    text = words(figures["privacy"])
    assert "proven: no crowd is\nworse" in text
    assert "attack: some crowd" in text
    certified = certify(five_plan).delta(epsilon=1).high
    shown = float(text.split("delta at most ")[1].split()[0])
    assert certified <= shown <= certified * 1.01
    axes = figures["privacy"].axes[0]
    assert axes.get_yscale() == "log"
    assert len(axes.collections) == 1  # the band
    proven, attack = axes.lines[0].get_ydata(), axes.lines[1].get_ydata()
    assert (attack <= proven).all()


def test_ratio_marks_lambda(figures):
    text = words(figures["ratio, SDP's row"])
    assert "lambda = 2" in text
    # SDP prints .0045 in this row; the exact value is .0427
    assert 0.0427 <= float(text.split("probability\n")[1].split()[0]) < 0.044
    positions = [line.get_xdata()[0] for line in figures["ratio, SDP's row"].axes[0].lines[1:]]
    assert positions[0] == pytest.approx(2)


def test_precision_marks_both_q(figures, five_plan):
    text = words(figures["precision"])
    assert f"q = {float(five_plan.q):.5g}" in text
    assert "without a crowd (local): q = 0.45017" in text


@pytest.mark.slow
def test_noise_shows_the_four_promises(figures):
    text = words(figures["noise"])
    for name in ("local", "proven", "attack", "three-sigma"):
        assert f"{name} q = " in text
    local, proven, attack, _ = (line.get_ydata() for line in figures["noise"].axes[0].lines)
    assert (attack <= proven).all()
    assert (proven <= local).all()


@pytest.mark.slow
def test_bounds_are_ordered(figures):
    for name in ("bounds", "bounds, sites"):
        lines = [line.get_ydata() for line in figures[name].axes[0].lines]
        for weaker, stronger in itertools.pairwise(lines):
            assert (stronger <= weaker * (1 + 2e-3)).all(), name


@pytest.mark.parametrize("domain", [(flags(5),), (choice(9),), (at_most(2, 6),)])
@pytest.mark.parametrize("bound", ["clones", "stronger clones"])
def test_published_q_is_on_the_edge(domain, bound):
    q = published_q(domain, 2000, 0.8, 1e-5, bound)
    assert published_delta(domain, 2000, q, 0.8, bound).high <= 1e-5
    assert published_delta(domain, 2000, 0.98 * q, 0.8, bound).low > 1e-5
    assert q <= local_q(9, 0.8)


def test_published_q_edges():
    assert published_q((flags(1),), 100, 0.0, 0.5, "clones") <= 0.5
    assert published_q((flags(1),), 10**12, 3.0, 0.4, "clones") > 0
    with pytest.raises(ValueError, match="bound"):
        published_q((flags(1),), 100, 1.0, 0.5, "variation ratio")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="delta"):
        published_q((flags(1),), 100, 1.0, 0.0, "clones")


def test_save_by_suffix(figures, tmp_path):
    starts = {"a.png": b"\x89PNG", "b.svg": b"<?xml", "c.pdf": b"%PDF", "d.PNG": b"\x89"}
    for name, start in starts.items():
        save(figures["precision"], tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    assert {path.name for path in tmp_path.iterdir()} == set(starts)
    for name in ("picture", "picture.jpg", ".png"):
        with pytest.raises(InputError, match=r"must end in \.png, \.svg or \.pdf"):
            save(figures["precision"], tmp_path / name)
    with pytest.raises(InputError, match="cannot write"):
        save(figures["precision"], tmp_path / "no such folder" / "picture.png")


@pytest.mark.slow
def test_nothing_global_changes():
    """In a process of its own, since other tests draw with pyplot."""
    drawing = (
        "import sys; from tests.reports import test_plots as these;"
        " these.plot_precision(these.certify(these.FIVE, q='0.2', crowd_size=100), epsilon=1);"
        " assert 'matplotlib.figure' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", drawing], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize("plot_picture", [plot_privacy, plot_ratio, plot_precision])
def test_what_cannot_be_drawn_is_refused(plot_picture):
    with pytest.raises(InputError, match="say which"):
        plot_picture(certify(FIVE, q="0.2", crowd_size=100))
    with pytest.raises(InputError):
        plot_picture(certify(FIVE, q="0.5", crowd_size=100), epsilon=1)
    with pytest.raises(InputError):
        plot_picture(certify(FIVE, q="0.2", crowd_size=100), epsilon=-1)
    with pytest.raises(InputError):
        plot_picture(plan(FIVE, q="0.2"))


@pytest.mark.parametrize("plot_picture", [plot_noise, plot_bounds])
def test_bad_wishes_are_refused(plot_picture):
    wish = {"epsilon": 1, "delta": 1e-6, "crowd_sizes": [10, 100]}
    for change in (
        {"epsilon": 0}, {"epsilon": math.inf}, {"delta": 0}, {"delta": 1}, {"crowd_sizes": [10]},
        {"crowd_sizes": [1, 10]}, {"crowd_sizes": [10.5, 20]},
    ):  # fmt: skip
        with pytest.raises(InputError):
            plot_picture(FIVE, **(wish | change))


@pytest.mark.slow
def test_draw_finds_a_delta():
    certificate = certify(FIVE, q="0.3", crowd_size=1000)
    assert "delta" in words(plot_picture("noise", certificate, epsilon=1))
    with pytest.raises(InputError, match="a picture is one of"):
        plot_picture("cat", certificate, epsilon=1)
