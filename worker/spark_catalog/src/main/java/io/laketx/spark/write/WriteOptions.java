package io.laketx.spark.write;

import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Parser;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.AppVersion;
import io.laketx.v1.BeginTransactionRequest;
import io.laketx.v1.Limit;
import io.laketx.v1.PartitionList;
import io.laketx.v1.Table;
import io.laketx.v1.TableIntent;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * How a write is committed: options of the write. What also makes sense for several statements can be a setting of the
 * session, `spark.laketx.` and the option's name; the option counts first.
 */
public final class WriteOptions {
  static final WriteOptions NONE = new WriteOptions(CaseInsensitiveStringMap.empty());
  private static final String SETTINGS = "spark.laketx.";
  private static final String MESSAGE = "message";
  private static final String APP_ID = "app_id";
  private static final String APP_VERSION = "app_version";
  private static final String STRICT = "strict_casts";
  private static final String STRICT_PROPERTY = "write.strict_casts";
  private static final String ORDER_BY = "order_by";
  private static final String RESULT = "result";
  private static final String STAGE = "stage";
  private static final String PARTITIONS = "partitions";
  private static final String READS = "reads";
  private static final int APP_ID_CHARS_MAX = Limit.LIMIT_APP_ID_CHARS_VALUE;
  private static final Pattern COLUMN = Pattern.compile("\\s*(?:`((?:[^`]|``)+)`|([^`,]+?))\\s*(?:,|$)");

  private final CaseInsensitiveStringMap options;

  private WriteOptions(CaseInsensitiveStringMap options) {
    this.options = options;
  }

  static WriteOptions of(CaseInsensitiveStringMap options) {
    return new WriteOptions(options);
  }

  /** Those that Spark passes on, and those that the table's name brought with it. */
  static WriteOptions of(CaseInsensitiveStringMap options, CaseInsensitiveStringMap named) {
    return new WriteOptions(joined(options, named));
  }

  /** The same for a write of rows: a MERGE that only inserts is one. */
  public static LogicalWriteInfo named(LogicalWriteInfo info, CaseInsensitiveStringMap named) {
    if (named.isEmpty()) return info;
    CaseInsensitiveStringMap options = joined(info.options(), named);
    return new LogicalWriteInfo() {
      @Override
      public CaseInsensitiveStringMap options() {
        return options;
      }

      @Override
      public String queryId() {
        return info.queryId();
      }

      @Override
      public StructType schema() {
        return info.schema();
      }
    };
  }

  private static CaseInsensitiveStringMap joined(CaseInsensitiveStringMap options, CaseInsensitiveStringMap named) {
    Map<String, String> both = new HashMap<>(options.asCaseSensitiveMap());
    both.putAll(named.asCaseSensitiveMap());
    return new CaseInsensitiveStringMap(both);
  }

  /** The options of the statement that runs, for a change that Spark passes none to. */
  public static WriteOptions ofStatement(CaseInsensitiveStringMap named) {
    return of(SparkPlans.writeOptions(), named);
  }

  static WriteOptions ofStatement() {
    return of(SparkPlans.writeOptions());
  }

  /** See {@link ConflictPolicy#of}. */
  ConflictPolicy policy(Table meta, boolean isBlind) {
    return ConflictPolicy.of(options, meta, isBlind);
  }

  /** The message of the commit; empty without one. */
  String message() {
    return options.getOrDefault(MESSAGE, ParquetOut.setting(SETTINGS + MESSAGE, ""));
  }

  /** The version that an application gives its write: a table takes none twice. */
  List<AppVersion> appVersions() {
    boolean isGiven = options.containsKey(APP_ID) || options.containsKey(APP_VERSION);
    String id = isGiven ? options.getOrDefault(APP_ID, "") : ParquetOut.setting(SETTINGS + APP_ID, "");
    String version = isGiven ? options.getOrDefault(APP_VERSION, "") : ParquetOut.setting(SETTINGS + APP_VERSION, "");
    if (!isGiven && id.isEmpty() && version.isEmpty()) return List.of();
    if (id.isEmpty() || id.length() > APP_ID_CHARS_MAX) {
      throw LakeException.invalid(
          "APP_VERSION_INVALID", "app_id is a text of 1 to " + APP_ID_CHARS_MAX + " characters, beside app_version");
    }
    if (!version.matches("[0-9]{1,18}")) {
      throw LakeException.invalid(
          "APP_VERSION_INVALID",
          "app_version is '" + version + "', beside app_id: give a whole number from 0 that grows with each write");
    }
    return List.of(AppVersion.newBuilder().setAppId(id).setVersion(Long.parseLong(version)).build());
  }

  /** Whether casts must keep the values of every column, not of the key alone. */
  boolean areCastsStrict(Table meta) {
    String asTable = meta.getPropertiesOrDefault(STRICT_PROPERTY, "false");
    String said = options.getOrDefault(STRICT, ParquetOut.setting(SETTINGS + STRICT, asTable));
    if (said.equals("true") || said.equals("false")) return said.equals("true");
    throw LakeException.invalid("OPTION_INVALID", "strict_casts is true or false, not '" + said + "'");
  }

  /** The columns that say which of two rows with one key is newer, or how the rows of an append table are sorted. */
  List<String> orderBy(Table meta) {
    String said = options.getOrDefault(ORDER_BY, "");
    List<String> found = new ArrayList<>();
    Matcher columns = COLUMN.matcher(said);
    int end = 0;
    while (end < said.length() && columns.find(end) && columns.start() == end) {
      String quoted = columns.group(1);
      found.add(columnOf(meta, quoted == null ? columns.group(2) : quoted.replace("``", "`")));
      end = columns.end();
    }
    if (end == said.length()) return found;
    throw LakeException.invalid("OPTION_INVALID", "order_by lists columns of the table, not '" + said + "'");
  }

  private static String columnOf(Table meta, String name) {
    return meta.getColumnsList().stream()
        .map(one -> one.getName())
        .filter(one -> one.equalsIgnoreCase(name))
        .findFirst()
        .orElseThrow(
            () -> LakeException.invalid("COLUMN_UNKNOWN", "order_by: " + meta.getName() + " has no column " + name));
  }

  /** The id under which {@link WriteResults} keeps how the write ended; empty: nobody asks. */
  String result() {
    return options.getOrDefault(RESULT, "");
  }

  /** Whether a write that changes nothing is committed as well. */
  boolean isAwaited() {
    return !result().isEmpty() || !appVersions().isEmpty();
  }

  /** The id of the transaction that commits what this write only stages; empty: it commits by itself. */
  String stage() {
    return options.getOrDefault(STAGE, "");
  }

  /** The partitions that an overwrite of everything is limited to; null: all. */
  PartitionList partitions() {
    return options.containsKey(PARTITIONS) ? message(PARTITIONS, PartitionList.parser()) : null;
  }

  /** What the caller has read for the rows, which Spark can't see; by tables. */
  List<TableIntent> reads() {
    return options.containsKey(READS) ? message(READS, BeginTransactionRequest.parser()).getTablesList() : List.of();
  }

  private <T> T message(String option, Parser<T> parser) {
    try {
      return parser.parseFrom(Base64.getDecoder().decode(options.get(option)));
    } catch (InvalidProtocolBufferException | IllegalArgumentException error) {
      throw LakeException.invalid("OPTION_INVALID", option + " is not what Python's writes give: leave it out");
    }
  }

  /** Refuses what belongs to the transaction of several statements that the write is one of. */
  void checkWithin() {
    for (String one : List.of(MESSAGE, APP_ID, APP_VERSION)) {
      if (!options.containsKey(one)) continue;
      throw LakeException.invalid(
          "POLICY_INVALID", "inside a transaction " + one + " belongs to the whole: lake.transaction(message, app_id=…)");
    }
  }

  /** Does the work; a refusal is kept for who asks for the result. */
  void noting(Runnable work) {
    try {
      work.run();
    } catch (LakeException refusal) {
      WriteResults.refused(result(), refusal);
      throw refusal;
    }
  }
}
