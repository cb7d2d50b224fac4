"""Figures that notebooks show by themselves."""

from io import BytesIO

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure with a picture of itself, which IPython asks for: pyplot and its windows are not
    needed."""

    def _repr_png_(self) -> bytes:
        """The figure as PNG."""
        picture = BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()
