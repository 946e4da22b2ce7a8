package io.laketx.spark.procedures;

import io.laketx.spark.BranchSetting;
import io.laketx.spark.service.ForeignWords;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Service;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;

/** The procedures of a catalog, in its namespace `system`. */
public final class Procedures {
  private static final String[] NAMESPACE = {"system"};

  private final String catalog;
  private final Map<String, LakeProcedure> known = new TreeMap<>();

  public Procedures(String catalog, Service service, BranchSetting branch) {
    this.catalog = catalog;
    Lake lake = new Lake(catalog, service, branch);
    Stream.of(
            Looking.all(lake),
            Marking.all(lake),
            Branching.all(lake),
            Changing.all(lake),
            Serving.all(lake),
            Purging.all(lake),
            ParquetFolders.all(lake))
        .flatMap(List::stream)
        .forEach(one -> known.put(one.name(), one));
  }

  public UnboundProcedure get(Identifier ident) {
    LakeProcedure found = isHere(ident.namespace()) ? known.get(ident.name().toLowerCase(Locale.ROOT)) : null;
    if (found != null) return found;
    String here = ForeignWords.procedure(catalog, ident.name());
    String instead = "SHOW PROCEDURES IN " + catalog + ".system lists those that there are";
    throw LakeException.invalid(
        "PROCEDURE_UNKNOWN", "there is no procedure " + ident + ": " + (here.isEmpty() ? instead : here));
  }

  /** Of the namespace `system`, or of the catalog. */
  public Identifier[] list(String[] namespace) {
    if (namespace.length > 0 && !isHere(namespace)) return new Identifier[0];
    return known.keySet().stream().map(name -> Identifier.of(NAMESPACE, name)).toArray(Identifier[]::new);
  }

  private static boolean isHere(String[] namespace) {
    return namespace.length == 1 && namespace[0].equalsIgnoreCase(NAMESPACE[0]);
  }
}
