package io.laketx.spark.define;

import io.laketx.spark.service.LakeException;
import io.laketx.v1.Limit;
import io.laketx.v1.Table;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.catalog.constraints.PrimaryKey;
import org.apache.spark.sql.connector.expressions.IdentityTransform;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;

/** The definition in a CREATE TABLE, as the service takes it. */
public final class NewTables {
  /** The properties that are fields of a table and not among its properties. */
  public static final String BUCKETS = "buckets";

  public static final String PROFILE = "profile";

  /** The key's columns, for statements that have no place for PRIMARY KEY. */
  private static final String PRIMARY_KEY = "primary_key";

  private static final int BUCKETS_DEFAULT = Limit.LIMIT_BUCKETS_UNNAMED_VALUE;
  private static final Set<String> PROVIDERS = Set.of("laketx", "parquet"); // the second is DataFrameWriter's default
  private static final String CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"; // where Spark notes it

  private NewTables() {}

  public static Table of(String name, TableInfo info) {
    Map<String, String> properties = new HashMap<>(info.properties());
    properties.keySet().removeIf(key -> key.startsWith(TableCatalog.OPTION_PREFIX)); // those are there without it too
    checkPlace(properties);
    Table.Builder table = Table.newBuilder().setName(name);
    List<String> key = primaryKey(info.constraints(), properties.remove(PRIMARY_KEY));
    Set<String> folded = key.stream().map(one -> one.toLowerCase(Locale.ROOT)).collect(Collectors.toSet());
    for (Column one : info.columns()) table.addColumns(column(one, folded));
    for (Transform one : info.partitions()) table.addPartitionColumns(partitionColumn(one));
    String comment = properties.remove(TableCatalog.PROP_COMMENT);
    if (comment != null) table.setComment(comment);
    String profile = properties.remove(PROFILE);
    if (profile != null) table.setProfile(profile);
    String buckets = properties.remove(BUCKETS);
    if (buckets != null) table.setBuckets(number(buckets));
    else if (!key.isEmpty()) table.setBuckets(BUCKETS_DEFAULT);
    return table.addAllPrimaryKey(key).putAllProperties(properties).build();
  }

  /** The same in place of a table, whose key and partitions stay: a definition that names none has those. */
  public static Table inPlaceOf(Table there, Table wanted, TableInfo info) {
    Table.Builder found = wanted.toBuilder();
    if (wanted.getPartitionColumnsCount() == 0) found.addAllPartitionColumns(there.getPartitionColumnsList());
    if (!info.properties().containsKey(BUCKETS)) found.setBuckets(there.getBuckets());
    if (wanted.getPrimaryKeyCount() > 0) return found.build();
    found.addAllPrimaryKey(there.getPrimaryKeyList());
    for (int at = 0; at < wanted.getColumnsCount(); at++) {
      if (there.getPrimaryKeyList().contains(wanted.getColumns(at).getName())) {
        found.setColumns(at, wanted.getColumns(at).toBuilder().setNullable(false));
      }
    }
    return found.build();
  }

  /** The same with another table's properties, as far as it says nothing else. */
  public static TableInfo like(TableInfo info, Map<String, String> properties) {
    Map<String, String> all = new HashMap<>(properties);
    all.remove(TableCatalog.PROP_COMMENT);
    all.remove("key.scope.checked");
    all.replace("key.scope", "checking", "table"); // a new table has nothing to check
    all.putAll(info.properties());
    TableInfo.Builder found = new TableInfo.Builder();
    found.withColumns(info.columns());
    found.withPartitions(info.partitions()).withConstraints(info.constraints()).withProperties(all);
    return found.build();
  }

  /** What Spark passes on of USING, LOCATION and its like. */
  private static void checkPlace(Map<String, String> properties) {
    String provider = properties.remove(TableCatalog.PROP_PROVIDER);
    if (provider != null && !PROVIDERS.contains(provider.toLowerCase(Locale.ROOT))) {
      throw LakeException.invalid(
          "FORMAT_NOT_SUPPORTED", "USING " + provider + ": the tables of this catalog are LakeTX's; leave USING out");
    }
    if (properties.containsKey(TableCatalog.PROP_LOCATION) || properties.containsKey(TableCatalog.PROP_EXTERNAL)) {
      throw LakeException.invalid(
          "LOCATION_FIXED",
          "a table's files lie in the warehouse: leave LOCATION out; CALL system.import_parquet registers files where"
              + " they are");
    }
    List.of(
            TableCatalog.PROP_OWNER,
            TableCatalog.PROP_TABLE_TYPE,
            TableCatalog.PROP_IS_MANAGED_LOCATION)
        .forEach(properties::remove);
  }

  private static io.laketx.v1.Column column(Column one, Set<String> key) {
    String metadata = one.metadataInJSON();
    if (metadata != null && metadata.contains(CHAR_TYPE)) {
      throw LakeException.invalid("TYPE_NOT_SUPPORTED", "char can't be a column's type: use string (" + one.name() + ")");
    }
    if (one.columnGenerationExpression() != null || one.identityColumnSpec() != null) {
      throw LakeException.invalid(
          "DEFAULT_NOT_SUPPORTED", "columns have no generated values: write them (" + one.name() + ")");
    }
    return io.laketx.v1.Column.newBuilder()
        .setName(one.name())
        .setType(SparkTypes.word(one.dataType()))
        .setNullable(one.nullable() && !key.contains(one.name().toLowerCase(Locale.ROOT)))
        .setComment(one.comment() == null ? "" : one.comment())
        .setDefaultSql(one.defaultValue() == null ? "" : one.defaultValue().getSql())
        .build();
  }

  private static String partitionColumn(Transform one) {
    if (!(one instanceof IdentityTransform)) {
      throw LakeException.invalid(
          "PARTITION_INVALID",
          one.describe()
              + ": tables are partitioned by columns as they are; add a column with that value, or use the property '"
              + BUCKETS
              + "' for the buckets of a primary key");
    }
    return oneName(one.references()[0]);
  }

  private static List<String> primaryKey(Constraint[] constraints, String named) {
    List<String> found = named == null ? List.of() : Arrays.stream(named.split(",")).map(String::strip).toList();
    for (Constraint one : constraints) {
      if (!(one instanceof PrimaryKey key)) throw onlyKeys(one.toDDL());
      found = Arrays.stream(key.columns()).map(NewTables::oneName).toList();
    }
    return found;
  }

  static LakeException onlyKeys(String constraint) {
    return LakeException.invalid(
        "CONSTRAINT_NOT_SUPPORTED",
        constraint + ": of constraints a table has NOT NULL and PRIMARY KEY, given in CREATE TABLE");
  }

  private static String oneName(NamedReference column) {
    String[] names = column.fieldNames();
    if (names.length == 1) return names[0];
    throw LakeException.invalid(
        "COLUMN_NESTED", column.describe() + ": keys and partitions are of whole columns, not of fields in them");
  }

  private static int number(String text) {
    if (text.matches("[0-9]{1,9}")) return Integer.parseInt(text);
    throw LakeException.invalid("BUCKETS_INVALID", BUCKETS + " is '" + text + "': give a whole number");
  }
}
