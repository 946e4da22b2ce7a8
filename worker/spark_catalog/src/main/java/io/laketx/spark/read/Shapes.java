package io.laketx.spark.read;

import io.laketx.spark.WireTypes;
import io.laketx.spark.read.Layouts.Found;
import io.laketx.spark.read.Layouts.Layout;
import io.laketx.v1.DataFile;
import io.laketx.v1.FileKind;
import io.laketx.v1.PartitionValue;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** The shapes of one scan's files: each is made once, for all files that are read alike. */
public final class Shapes {
  /** A column that tells of a file's rows, as it was written, which are tombstones. */
  public static final String OP = "_op";

  /** A column that tells which columns images of a file set; NULL: all. */
  public static final String SET = "_laketx_set";

  /** What is read of a file beside the columns that the scan gives. */
  enum Beside {
    POSITION,
    OWN_IDS,
    OP,
    KEYS,
    KEYS_ALONE,
    /** Behind the columns that the scan gives: the key's, {@link #OP}, {@link #SET}. All rows are read. */
    FOLD
  }

  private final Snapshot snapshot;
  private final StructType required;
  private final Filter[] filters;
  private final Set<String> told;
  private final boolean isLocal;
  private final Layouts layouts;
  private final DataType[] keyTypes;
  private final Map<Key, Integer> known = new HashMap<>();
  private final List<Shape> made = new ArrayList<>();

  Shapes(Snapshot snapshot, StructType required, Filter[] filters) {
    this(snapshot, required, filters, Set.of());
  }

  /** `told`: the columns wanted that whoever plans a file gives a value for. */
  public Shapes(Snapshot snapshot, StructType required, Filter[] filters, Set<String> told) {
    this.told = told;
    this.snapshot = snapshot;
    this.required = required;
    this.filters = filters;
    String warehouse = snapshot.service().address().warehouse();
    isLocal = !warehouse.contains("://") || warehouse.startsWith("file:");
    List<StructField> columns = new ArrayList<>();
    for (StructField one : required.fields()) {
      if (!isBeside(one.name())) columns.add(one);
    }
    layouts = new Layouts(snapshot, new StructType(columns.toArray(StructField[]::new)));
    Map<String, String> types = new HashMap<>();
    snapshot.meta().getColumnsList().forEach(one -> types.put(one.getName(), one.getType()));
    keyTypes =
        snapshot.meta().getPrimaryKeyList().stream()
            .map(name -> WireTypes.typeOf(types.get(name)))
            .toArray(DataType[]::new);
  }

  private record Key(Object layout, Set<Beside> beside, boolean isDelta) {}

  StructType required() {
    return required;
  }

  public Shape[] all() {
    return made.toArray(Shape[]::new);
  }

  /** The number of the shape in which a file is read. */
  int of(DataFile file, Set<Beside> asked) {
    Set<Beside> beside = asked.isEmpty() ? EnumSet.noneOf(Beside.class) : EnumSet.copyOf(asked);
    if (!beside.contains(Beside.KEYS_ALONE) && asksFor(MetadataColumns.ROW_ID)) {
      beside.add(Beside.POSITION);
      if (file.getCarriesRowIds()) beside.add(Beside.OWN_IDS);
    }
    boolean isDelta = snapshot.isKeyed() && file.getKind() == FileKind.FILE_KIND_DELTA;
    if (isDelta) {
      if (beside.contains(Beside.KEYS) || beside.contains(Beside.KEYS_ALONE)) beside.add(Beside.OP);
    }
    Layout layout = layouts.of(file);
    return known.computeIfAbsent(
        new Key(layout.tag(), beside, isDelta && (asksFor(OP) || beside.contains(Beside.FOLD))),
        key -> {
          made.add(beside.contains(Beside.KEYS_ALONE) ? ofKeys(layout, beside) : make(layout, beside, isDelta));
          return made.size() - 1;
        });
  }

  /** The values of a file's rows that are one for all of them, in the places that shapes know them by. */
  Object[] valuesOf(DataFile file, long dataVersion, Map<String, Object> said) {
    Object[] values = new Object[required.length()];
    Map<String, PartitionValue> partition = new HashMap<>();
    if (file.getExternal()) file.getPartition().getValuesList().forEach(one -> partition.put(one.getColumn(), one));
    for (int at = 0; at < values.length; at++) {
      StructField one = required.apply(at);
      switch (one.name()) {
        case MetadataColumns.FILE -> values[at] = UTF8String.fromString(file.getPath());
        case MetadataColumns.VERSION -> values[at] = dataVersion;
        case MetadataColumns.PARTITION ->
            values[at] = LivePartitions.row(file.getPartition(), (StructType) one.dataType());
        default -> {
          values[at] = said.get(one.name());
          PartitionValue known = partition.get(one.name());
          if (known != null) values[at] = PartitionValues.inRows(known.getValue(), one.dataType());
        }
      }
    }
    return values;
  }

  private boolean asksFor(String metadataColumn) {
    return required.getFieldIndex(metadataColumn).isDefined();
  }

  /** Whether it is no column of the table. */
  private boolean isBeside(String name) {
    return name.equals(MetadataColumns.ROW_ID)
        || name.equals(MetadataColumns.FILE)
        || name.equals(MetadataColumns.VERSION)
        || name.equals(MetadataColumns.PARTITION)
        || name.equals(OP)
        || name.equals(SET)
        || told.contains(name);
  }

  private Shape make(Layout layout, Set<Beside> beside, boolean isDelta) {
    Columns columns = new Columns();
    boolean folds = beside.contains(Beside.FOLD);
    Source[] sources = new Source[required.length() + (folds ? keyTypes.length + 2 : 0)];
    Map<String, String> namesInFiles = new HashMap<>();
    int next = 0;
    for (int at = 0; at < required.length(); at++) {
      StructField one = required.apply(at);
      if (one.name().equals(OP) || one.name().equals(SET)) {
        sources[at] = ofDelta(columns, one.name(), one.dataType(), isDelta);
        continue;
      }
      if (isBeside(one.name())) {
        boolean isId = one.name().equals(MetadataColumns.ROW_ID);
        sources[at] = new Source(isId ? Source.Kind.ROW_ID : Source.Kind.VALUE, at, one.dataType());
        continue;
      }
      Found found = layout.found().get(next++);
      if (found.isPartition()) sources[at] = new Source(Source.Kind.VALUE, at, one.dataType());
      else if (found.field() == null) sources[at] = new Source(Source.Kind.NULL, -1, one.dataType());
      else {
        sources[at] = new Source(Source.Kind.READ, columns.add(found.field()), one.dataType());
        if (mayFilter(one.dataType())) namesInFiles.put(one.name(), found.field().name());
      }
    }
    if (!folds) return finished(layout, beside, columns, sources, FileFilters.under(namesInFiles, filters));
    int behind = required.length();
    for (int at = 0; at < keyTypes.length; at++) {
      sources[behind++] = new Source(Source.Kind.READ, columns.add(layout.keys().get(at).field()), keyTypes[at]);
    }
    sources[behind++] = ofDelta(columns, OP, DataTypes.IntegerType, isDelta);
    sources[behind] = ofDelta(columns, SET, DataTypes.BinaryType, isDelta);
    return finished(layout, beside, columns, sources, new Filter[0]);
  }

  private static Source ofDelta(Columns columns, String name, DataType type, boolean isDelta) {
    if (!isDelta) return new Source(Source.Kind.NULL, -1, type);
    return new Source(Source.Kind.READ, columns.add(name, type), type);
  }

  private Shape ofKeys(Layout layout, Set<Beside> beside) {
    return finished(layout, beside, new Columns(), new Source[0], new Filter[0]);
  }

  private Shape finished(Layout layout, Set<Beside> beside, Columns columns, Source[] sources, Filter[] pushed) {
    boolean withKeys = beside.contains(Beside.KEYS) || beside.contains(Beside.KEYS_ALONE);
    int[] keys = new int[withKeys ? layout.keys().size() : 0];
    for (int at = 0; at < keys.length; at++) keys[at] = columns.add(layout.keys().get(at).field());
    int ownIds = beside.contains(Beside.OWN_IDS) ? columns.add(MetadataColumns.ROW_ID, DataTypes.LongType) : -1;
    int op = beside.contains(Beside.OP) ? columns.add(OP, DataTypes.IntegerType) : -1;
    int index = beside.contains(Beside.POSITION) ? columns.add(SparkInternals.ROW_INDEX, DataTypes.LongType) : -1;
    SparkInternals.ParquetFiles parquet = SparkInternals.ParquetFiles.of(columns.schema(), pushed, isLocal);
    return new Shape(parquet, sources, index, ownIds, op, keys, keyTypes);
  }

  /** Floats are left to Spark; what is in structs, arrays and maps it doesn't ask here. */
  private static boolean mayFilter(DataType type) {
    return !(type instanceof FloatType || type instanceof DoubleType);
  }

  /** The columns that are read of a file, each once. */
  private static final class Columns {
    private final List<StructField> fields = new ArrayList<>();

    int add(StructField field) {
      for (int at = 0; at < fields.size(); at++) {
        if (fields.get(at).name().equals(field.name())) return at;
      }
      fields.add(field);
      return fields.size() - 1;
    }

    int add(String name, DataType type) {
      return add(new StructField(name, type, true, Metadata.empty()));
    }

    StructType schema() {
      return new StructType(fields.toArray(StructField[]::new));
    }
  }
}
