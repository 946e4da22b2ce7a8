package io.laketx.spark;

import io.laketx.spark.read.MetadataColumns;
import io.laketx.spark.write.Casts;
import io.laketx.spark.write.Reruns;
import io.laketx.v1.Column;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.trees.CurrentOrigin$;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The table of an INSERT of VALUES, which an earlier statement has looked at: this one is analysed with that look. Only
 * values are taken that fit without a check, so that nothing is refused here for what the table no longer is. The service
 * compares the definition when the transaction begins; where it is another one the statement runs again, and looks itself.
 */
final class RememberedTarget {
  /** Of the relation: the definition with which the statement is analysed. */
  static final String OPTION = "laketx.definition";

  private RememberedTarget() {}

  /** The plan, with the table's definition as an option where it may be remembered. */
  static Object of(SparkSession session, Object plan) {
    if (!(plan instanceof InsertIntoStatement insert) || !isPlain(insert) || Reruns.isRerun()) return plan;
    if (!(insert.table() instanceof UnresolvedRelation target) || !(insert.query() instanceof LocalRelation rows)) return plan;
    Table known = known(session, new ArrayList<>(CollectionConverters.asJava(target.multipartIdentifier())));
    if (known == null || known.getDefinition().isEmpty() || MetadataColumns.keysAreLookedUp(known)) return plan;
    List<String> named = CollectionConverters.asJava(insert.userSpecifiedCols());
    if (!fit(CollectionConverters.asJava(rows.output()), named, known)) return plan;
    return marked(insert, marked(target, known));
  }

  private static boolean isPlain(InsertIntoStatement insert) {
    boolean isOfParts = !insert.partitionSpec().isEmpty() || insert.ifPartitionNotExists();
    boolean isMore = insert.byName() || insert.withSchemaEvolution() || insert.replaceCriteriaOpt().isDefined();
    return !insert.overwrite() && !isOfParts && !isMore;
  }

  /** Null where no statement of the session has seen it. */
  private static Table known(SparkSession session, List<String> parts) {
    LakeCatalog lake = lakeOf(session, parts);
    if (lake == null) return null;
    int last = parts.size() - 1;
    return lake.known(Identifier.of(parts.subList(0, last).toArray(String[]::new), parts.get(last)));
  }

  /** The catalog of a table's name, whose parts become those within it; null where it is no lake's. */
  static LakeCatalog lakeOf(SparkSession session, List<String> parts) {
    CatalogManager catalogs =
        ((org.apache.spark.sql.classic.SparkSession) session).sessionState().catalogManager();
    String catalog = catalogs.currentCatalog().name();
    if (parts.size() > 1 && catalogs.isCatalogRegistered(parts.get(0))) catalog = parts.remove(0);
    else if (parts.size() == 1) parts.addAll(0, List.of(catalogs.currentNamespace()));
    return catalogs.catalog(catalog) instanceof LakeCatalog lake ? lake : null;
  }

  private static boolean fit(List<Attribute> values, List<String> named, Table table) {
    Map<String, Column> columns = new HashMap<>();
    for (Column one : table.getColumnsList()) columns.put(one.getName(), one);
    List<String> names = named.isEmpty() ? table.getColumnsList().stream().map(Column::getName).toList() : named;
    Set<String> given = new HashSet<>(names);
    if (values.size() != names.size() || given.size() != names.size() || !columns.keySet().containsAll(given)) return false;
    for (int at = 0; at < names.size(); at++) {
      Column column = columns.get(names.get(at));
      boolean isMissing = values.get(at).nullable() && !column.getNullable();
      if (isMissing || !Casts.isSafe(values.get(at).dataType(), WireTypes.typeOf(column.getType()))) return false;
    }
    return columns.values().stream().allMatch(one -> one.getNullable() || given.contains(one.getName()));
  }

  private static UnresolvedRelation marked(UnresolvedRelation target, Table known) {
    Map<String, String> options = new HashMap<>(target.options().asCaseSensitiveMap());
    options.put(OPTION, known.getDefinition());
    UnresolvedRelation found =
        CurrentOrigin$.MODULE$.withOrigin(
            target.origin(),
            () -> target.copy(target.multipartIdentifier(), new CaseInsensitiveStringMap(options), target.isStreaming()));
    found.copyTagsFrom(target);
    return found;
  }

  private static InsertIntoStatement marked(InsertIntoStatement insert, UnresolvedRelation target) {
    InsertIntoStatement found =
        CurrentOrigin$.MODULE$.withOrigin(
            insert.origin(),
            () ->
                insert.copy(
                    target, insert.partitionSpec(), insert.userSpecifiedCols(), insert.query(), insert.overwrite(),
                    insert.ifPartitionNotExists(), insert.byName(), insert.replaceCriteriaOpt(),
                    insert.withSchemaEvolution()));
    found.copyTagsFrom(insert);
    return found;
  }
}
