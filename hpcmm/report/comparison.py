"""A comparison of two timings files as a page."""

from pathlib import Path

from hpcmm import analysis, store
from hpcmm.analysis import compare
from hpcmm.report import definitions, formats, sheet, tables, vega
from hpcmm.system.text import printable

# Verdicts with a time, with their colours; the others are behind
HUES = {"same": vega.GREY, "ambiguous": vega.GREY, "faster": vega.PALETTE[2], "slower": vega.PALETTE[5]}


def figure(comparison: compare.Comparison) -> vega.Figure | None:
    """Draw the speedup of each point over its time before; None for one or two points, which the table has."""
    rows = comparison.rows[comparison.rows["verdict"].isin(list(HUES)) & (comparison.rows["ratio"] > 0)]
    if len(rows) < 3:
        return None
    rows = rows.sort_values("verdict", key=lambda column: column.map(list(HUES).index), kind="stable")
    unit, scale = formats.unit_of(rows["before"].median())
    columns = {"label": list(rows["label"]), "sweep": list(rows["sweep"])}
    columns["size"] = list(map(formats.size, analysis.row_dicts(rows)))
    columns |= {name: list(rows[name]) for name in ("dtype", "verdict")}
    columns |= {name: vega.rounded(rows[name] * scale) for name in ("before", "after")}
    columns |= {name: vega.rounded(rows[name]) for name in ("ratio", "low", "high")}
    shown = {"label": "Variant", "sweep": "Sweep", "size": "Size", "dtype": "Type", "verdict": "Verdict"}
    shown |= {"before": f"Before, {unit}", "after": f"After, {unit}", "ratio": "Speedup"}
    present = [verdict for verdict in HUES if verdict in columns["verdict"]]
    hues = {"domain": present, "range": [HUES[verdict] for verdict in present]}
    color = vega.category("verdict", legend={"title": None}, scale=hues)
    x = vega.quantity("before", **vega.rate_axis(rows["before"] * scale, f"time before, {unit}", zero=False))
    y = vega.rate_axis(rows["ratio"], "speedup", zero=False)
    tooltip = vega.tooltip({key: title.lower() for key, title in shown.items()})
    layers = [
        vega.AT_ONE,
        vega.layer(vega.dots(45, 0.8), x=x, y=vega.quantity("ratio", **y), color=color, tooltip=tooltip),
    ]
    changed = rows["verdict"].isin(("faster", "slower"))
    if (rows["low"].notna() & changed).any():  # intervals of all would hide the points
        some = [{"filter": "datum.verdict == 'faster' || datum.verdict == 'slower'"}]
        ends = {"x": x, "y": vega.quantity("low", **y), "y2": {"field": "high"}, "color": color}
        layers.append(vega.layer({"type": "rule", "strokeWidth": 1.5}, "isValid(datum.low)", some, **ends))
    caption = "Speedup of each point over its time before; intervals of the faster and slower ones"
    return vega.Figure("speedups", caption, columns, vega.layered(layers, 300), shown | {"low": "from", "high": "to"})


def build(comparison: compare.Comparison, before: Path, after: Path, scope: str, target: Path) -> None:
    rows, counts = comparison.rows, comparison.counts
    kinds = {**dict.fromkeys((*compare.WORSE, "slower"), "wrong"), "faster": "pass", "mended": "pass"}
    shown = [("points in both", len(rows), "")]
    shown += [(verdict, count, kinds.get(verdict, "")) for verdict, count in counts.items()]
    shown += [("only before", comparison.missing, ""), ("only after", comparison.added, "")]
    notes = [f"{note[:1].upper()}{note[1:]}." for note in comparison.noise]
    notes += [f"Differs: {difference}." for difference in comparison.differences]
    changed = rows[rows["verdict"].isin(list(kinds))]
    known = [(kinds[verdict], f"{count} {verdict}") for verdict, count in counts.items() if verdict in kinds]
    states = [("fail" if kind == "wrong" else "pass", text) for kind, text in known]
    shown_changes = [tables.comparison_table(changed)] if len(changed) else []
    none = "No point changed significantly." if comparison.judged else compare.NONE_JUDGED
    text = [] if len(changed) else [none]
    drawn = list(filter(None, [figure(comparison)]))
    sections = [sheet.Section("Changes", text, drawn, shown_changes, states=states)]
    sections.append(sheet.Section("Points", folded=[tables.comparison_table(rows)] if len(rows) else []))
    sections.append(sheet.Section("What counts as a change", definition=definitions.of("verdict")))
    about = f"{printable(str(after))} compared with {printable(str(before))}, {compare.SCOPES[scope]}"
    store.write_text(target, sheet.render("Comparison", about, shown, notes, sections))
