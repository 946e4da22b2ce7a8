"""The functions that a materialized view can use: those whose value depends on their arguments alone.

Anything else is refused by name, also a function that is not known here: nobody can say whether it is deterministic.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from worker.base.errors import InputError

SCALARS: Final = frozenset(
    [
        "Abs",
        "Acos",
        "Acosh",
        "And",
        "Array",
        "ArrayAppend",
        "ArrayConcat",
        "ArrayContains",
        "ArrayFilter",
        "ArrayPrepend",
        "ArraySize",
        "ArraySlice",
        "ArraySort",
        "ArrayToString",
        "Ascii",
        "Asin",
        "Asinh",
        "Atan",
        "Atan2",
        "Atanh",
        "BitLength",
        "BitwiseCount",
        "ByteLength",
        "Case",
        "Cast",
        "Cbrt",
        "Ceil",
        "Chr",
        "Coalesce",
        "Concat",
        "ConcatWs",
        "Contains",
        "Cos",
        "Cosh",
        "Cot",
        "Date",
        "DateAdd",
        "DateBin",
        "DateDiff",
        "DateFromParts",
        "DateSub",
        "DateToDateStr",
        "DateTrunc",
        "Datetime",
        "DatetimeAdd",
        "DatetimeDiff",
        "DatetimeSub",
        "DatetimeTrunc",
        "Day",
        "DayOfMonth",
        "DayOfWeek",
        "DayOfWeekIso",
        "DayOfYear",
        "Dayname",
        "Decode",
        "Degrees",
        "Encode",
        "EndsWith",
        "EqualNull",
        "Exp",
        "Explode",
        "Extract",
        "Factorial",
        "Flatten",
        "Floor",
        "Format",
        "FromBase64",
        "GenerateSeries",
        "Greatest",
        "Hex",
        "Hour",
        "If",
        "Initcap",
        "IsInf",
        "IsNan",
        "JSONArray",
        "JSONExtract",
        "JSONExtractScalar",
        "JSONObject",
        "JSONType",
        "JarowinklerSimilarity",
        "LastDay",
        "Least",
        "Left",
        "Length",
        "Levenshtein",
        "Ln",
        "Log",
        "Lower",
        "MD5",
        "MakeInterval",
        "MapFromEntries",
        "MapKeys",
        "Minute",
        "Month",
        "Monthname",
        "Negative",
        "Nullif",
        "NumberToStr",
        "Nvl2",
        "Or",
        "Overlay",
        "Pad",
        "Pi",
        "Pow",
        "Quarter",
        "Radians",
        "RegexpExtract",
        "RegexpExtractAll",
        "RegexpFullMatch",
        "RegexpLike",
        "RegexpReplace",
        "RegexpSplit",
        "Repeat",
        "Replace",
        "Reverse",
        "Right",
        "Rint",
        "Round",
        "SHA",
        "SHA2",
        "SafeDivide",
        "Second",
        "Sign",
        "Sin",
        "Sinh",
        "Split",
        "SplitPart",
        "Sqrt",
        "StartsWith",
        "StrPosition",
        "StrToDate",
        "StrToTime",
        "Struct",
        "StructExtract",
        "Substring",
        "Tan",
        "Tanh",
        "TimeToStr",
        "TimeToUnix",
        "TimestampAdd",
        "TimestampDiff",
        "TimestampSub",
        "TimestampTrunc",
        "ToBase64",
        "ToMap",
        "Transform",
        "Translate",
        "Trim",
        "Trunc",
        "Try",
        "TryCast",
        "TsOrDsAdd",
        "TsOrDsDiff",
        "TsOrDsToDate",
        "TsOrDsToTimestamp",
        "Typeof",
        "Unhex",
        "Unicode",
        "UnixToTime",
        "Unnest",
        "Upper",
        "Week",
        "WeekOfYear",
        "Xor",
        "Year",
    ]
)
_NAMED_SCALARS: Final = """
    bar bin cardinality century damerau_levenshtein date_part datepart decade element_at epoch era even gamma gcd
    greatest_common_divisor hamming isodow isoyear jaccard jaro_similarity json_array json_array_length
    json_contains json_exists json_keys json_object json_quote json_type json_valid julian lcm
    least_common_multiple left_grapheme length_grapheme lgamma list_aggregate list_any_value list_append
    list_avg list_bool_and list_bool_or list_concat list_cosine_similarity list_count list_distance
    list_extract list_has list_has_all list_has_any list_indexof list_inner_product list_max list_median
    list_min list_position list_prepend list_product list_resize list_reverse list_reverse_sort
    list_slice list_sum list_unique list_where list_zip map map_concat map_contains map_entries
    map_extract map_extract_value map_from_entries map_keys map_values microsecond millennium
    millisecond mismatches nanosecond nextafter nfc_normalize octet_length ord parse_dirname
    parse_dirpath parse_filename parse_path prefix printf regexp_escape regexp_matches
    regexp_split_to_array right_grapheme row row_to_json signbit string_split_regex strip_accents strlen
    struct_concat struct_insert struct_keys struct_values suffix to_base to_binary to_json try_strptime
    unbin union_extract union_tag url_decode url_encode weekday yearweek
    """
NAMED_SCALARS: Final = frozenset(_NAMED_SCALARS.split())
EXACT: Final = frozenset(
    [
        "BitwiseAndAgg",
        "BitwiseOrAgg",
        "BitwiseXorAgg",
        "Count",
        "CountIf",
        "Grouping",
        "GroupingId",
        "Min",
        "Max",
        "LogicalAnd",
        "LogicalOr",
        "Median",
        "PercentileCont",
        "PercentileDisc",
        "Quantile",
    ]
)
ORDERED_IF_FLOAT: Final = frozenset(["Sum", "Avg"])
ORDERED: Final = frozenset(
    [
        "ArgMax",
        "ArgMin",
        "Corr",
        "CovarPop",
        "CovarSamp",
        "Kurtosis",
        "Mode",
        "RegrAvgx",
        "RegrAvgy",
        "RegrCount",
        "RegrIntercept",
        "RegrR2",
        "RegrSlope",
        "RegrSxx",
        "RegrSxy",
        "RegrSyy",
        "Skewness",
        "Stddev",
        "StddevPop",
        "StddevSamp",
        "Variance",
        "VariancePop",
    ]
)
COLLECTING: Final = frozenset(["ArrayAgg", "GroupConcat", "List"])
EXACT_TYPES: Final = frozenset(
    getattr(exp.DataType.Type, name)
    for name in [
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "INT128",
        "UTINYINT",
        "USMALLINT",
        "UINT",
        "UBIGINT",
        "DECIMAL",
        "BOOLEAN",
    ]
)
PLACES: Final = frozenset(["RowNumber", "Ntile", "Lag", "Lead", "FirstValue", "LastValue", "NthValue"])
RANKS: Final = frozenset(["Rank", "DenseRank", "PercentRank", "CumeDist"])
MOMENTS: Final = frozenset({"now", "today", "tomorrow", "yesterday"})


def check_functions(query: exp.Expr) -> None:
    """Refuses functions that are not deterministic, or not known to be; orders rows where it counts."""
    for node in list(query.find_all(exp.Func)):
        name = type(node).__name__
        window = _window_of(node)
        if window is not None:
            _check_window(node, name, window)
        elif isinstance(node, exp.Cast) and node.this.is_string and node.this.name.strip().lower() in MOMENTS:
            raise _unknown(node.this.name)
        elif isinstance(node, exp.Anonymous):
            if str(node.this).lower() not in NAMED_SCALARS:
                raise _unknown(str(node.this))
        elif isinstance(node, exp.AggFunc):
            _check_aggregate(node, name)
        elif isinstance(node, exp.Collate):
            raise refused("a view has no COLLATE: use lower(…) or strip_accents(…)")
        elif name not in SCALARS and not isinstance(node, exp.SubqueryPredicate):
            raise _unknown(node.sql_name())


def _window_of(node: exp.Expr) -> exp.Expr | None:
    """The window of a function that is over one."""
    while isinstance(node.parent, exp.IgnoreNulls | exp.RespectNulls | exp.Filter) and node.arg_key == "this":
        node = node.parent
    return node.parent if isinstance(node.parent, exp.Window) and node.arg_key == "this" else None


def _check_window(node: exp.Func, name: str, window: exp.Expr) -> None:
    spec = window.args.get("spec")
    kind = "" if spec is None else spec.text("kind").upper()
    if spec is not None and spec.args.get("exclude") is not None:
        raise refused("EXCLUDE in a window is not supported")
    if name in ("LastValue", "NthValue") and kind != "ROWS":
        raise refused(f"{node.sql_name().lower()} takes any of equal rows: give it a frame of ROWS BETWEEN … AND …")
    if name == "FirstValue" and kind not in ("", "ROWS"):
        raise refused("first_value takes any of equal rows in such a frame: give it a frame of ROWS BETWEEN … AND …")
    if name in PLACES | RANKS | EXACT:
        return
    if name not in ORDERED_IF_FLOAT:
        raise _unknown(node.sql_name())
    if not _is_exact(node.this):
        raise refused("a sum of floats over a window depends on the order of its rows: cast the argument to a decimal")


def _check_aggregate(node: exp.AggFunc, name: str) -> None:
    if name in EXACT:
        return
    argument = node.this
    if name in ORDERED_IF_FLOAT | ORDERED:
        if name in ORDERED or not _is_exact(argument):
            _put_in_order(node)
        return
    order = argument.find(exp.Order) if isinstance(argument, exp.Expr) else None
    if name in COLLECTING and order is not None and order.this is not None:
        if any(_same(term.this, order.this) for term in order.expressions):
            return
        raise refused(f"{node.sql_name().lower()} must be ordered by what it collects: equal ones come in any order")
    raise _unknown(node.sql_name())


def _is_exact(argument: exp.Expr) -> bool:
    of = argument.expressions[0] if isinstance(argument, exp.Distinct) and argument.expressions else argument
    return of.type is not None and of.type.this in EXACT_TYPES


def _put_in_order(node: exp.AggFunc) -> None:
    """Sums of floats, and which of equal rows is taken, depend on the order of rows: the arguments themselves order it.

    Of rows with one greatest value, `arg_max` takes the first in the order of what it returns.
    """
    if node.args.get("count") is not None:
        raise _unknown(node.sql_name())
    last = "this" if node.args.get("expression") is None else "expression"
    argument = node.args[last]
    if isinstance(argument, exp.Order):
        argument = argument.this
    of = list(argument.expressions) if isinstance(argument, exp.Distinct) else [argument]
    if last == "expression":
        of.insert(0, node.this)
    terms = [exp.Ordered(this=each.copy(), nulls_first=False) for each in of]
    node.set(last, exp.Order(this=argument.copy(), expressions=terms))


def _same(left: exp.Expr, right: exp.Expr) -> bool:
    return bool(left == (right.expressions[0] if isinstance(right, exp.Distinct) else right))


def _unknown(name: str) -> InputError:
    return refused(f"{name.lower()} is not known to be deterministic: a view's rows depend on its sources alone")


def refused(why: str) -> InputError:
    """The refusal of a query."""
    return InputError("VIEW_QUERY_INVALID", why)
