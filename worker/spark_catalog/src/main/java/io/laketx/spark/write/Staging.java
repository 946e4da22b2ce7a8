package io.laketx.spark.write;

import com.google.protobuf.InvalidProtocolBufferException;
import io.laketx.spark.WireTypes;
import io.laketx.v1.Column;
import io.laketx.v1.FileKind;
import io.laketx.v1.Table;
import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** What a task must know to stage rows of a table: the columns, where they go, and how files are written. */
final class Staging implements Serializable {
  private static final long serialVersionUID = 1;

  private final byte[] table;
  private final String folder;
  private final String txnId;
  private final FileKind kind;
  private final boolean keepsIds;
  private final SetColumns sets; // null: every image is whole
  private final ParquetOut out; // null: nothing is written, MetaService keeps the rows
  private String[] orderBy = {};
  private transient Table meta;

  private Staging(Table meta, String txnId, FileKind kind, SetColumns sets) {
    table = meta.toByteArray();
    folder = null;
    this.txnId = txnId;
    this.kind = kind;
    keepsIds = false;
    this.sets = sets;
    out = null;
  }

  /** For rows that MetaService keeps. */
  static Staging inlined(Table meta, String txnId, FileKind kind, SetColumns sets) {
    return new Staging(meta, txnId, kind, sets);
  }

  /** `folder` is the table's; `keepsIds`: rows may bring the id that they had. */
  Staging(Table meta, String folder, String txnId, FileKind kind, boolean keepsIds) {
    this(meta, folder, txnId, kind, keepsIds, null);
  }

  /** `sets`: what images set; null: they are whole. */
  Staging(Table meta, String folder, String txnId, FileKind kind, boolean keepsIds, SetColumns sets) {
    this.sets = sets;
    table = meta.toByteArray();
    this.folder = folder;
    this.txnId = txnId;
    this.kind = kind;
    this.keepsIds = keepsIds;
    StructType columns = FileColumns.of(meta);
    StructField beside = kind == FileKind.FILE_KIND_DELTA ? FileColumns.OP : keepsIds ? FileColumns.ROW_ID : null;
    if (beside != null) columns = columns.add(beside);
    out = ParquetOut.of(meta, sets == null ? columns : columns.add(FileColumns.SET));
  }

  synchronized Table meta() {
    try {
      if (meta == null) meta = Table.parseFrom(table);
      return meta;
    } catch (InvalidProtocolBufferException error) {
      throw new IllegalStateException(error);
    }
  }

  /** The same; of the rows of a key, which come together, the newest counts by these columns. */
  Staging orderedBy(List<String> columns) {
    orderBy = columns.toArray(String[]::new);
    return this;
  }

  List<String> orderBy() {
    return List.of(orderBy);
  }

  String txnId() {
    return txnId;
  }

  FileKind kind() {
    return kind;
  }

  boolean keepsIds() {
    return keepsIds;
  }

  SetColumns sets() {
    return sets;
  }

  boolean isKeyed() {
    return kind != FileKind.FILE_KIND_UNSPECIFIED;
  }

  /** A new file at a path within the table's folder. */
  RowFile create(String path) {
    return out == null ? new InlinedRowFile(meta(), kind, sets != null) : new ParquetRowFile(meta(), out, folder + "/" + path);
  }

  String suffix() {
    return out == null ? ".arrow" : ".parquet";
  }

  /** Whether the service judges by rows, and asks for the keys that are written. */
  boolean tellsKeys() {
    return kind == FileKind.FILE_KIND_DELTA && meta().getRules().getWantsKeys();
  }

  DataType[] types() {
    return typesOf(meta());
  }

  static DataType[] typesOf(Table meta) {
    return meta.getColumnsList().stream().map(one -> WireTypes.typeOf(one.getType())).toArray(DataType[]::new);
  }

  int[] ordinals(List<String> names) {
    List<String> columns = meta().getColumnsList().stream().map(Column::getName).toList();
    return names.stream().mapToInt(columns::indexOf).toArray();
  }
}
