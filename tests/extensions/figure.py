"""A figure: the error of each rung beside its bound."""


def errors(frame):
    """Yield one figure for each operation."""
    from hpcmm.report.vega import Figure

    for operation, rows in frame[frame["error"].notna() & (frame["bound"] > 0)].groupby("operation"):
        columns = {"label": list(rows["label"]), "error": list(rows["error"] / rows["bound"])}
        spec = {
            "mark": {"type": "point", "filled": True},
            "encoding": {
                "y": {"field": "label", "type": "nominal", "title": None},
                "x": {"field": "error", "type": "quantitative", "title": "largest error over its bound"},
            },
        }
        caption = f"The largest error of {operation} over what rounding may cause"
        yield Figure(f"errors-{operation}", caption, columns, spec, {"label": "Rung", "error": "Error over bound"})


FIGURES = (errors,)
