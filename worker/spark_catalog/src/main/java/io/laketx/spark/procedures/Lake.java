package io.laketx.spark.procedures;

import io.laketx.spark.BranchSetting;
import io.laketx.spark.define.Tables;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Service;
import io.laketx.v1.ResolveVersionRequest;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.InternalRow;

/** What procedures ask for: tables by the names that people give, versions, and lists in pages. */
record Lake(String catalog, Service service, BranchSetting branch) {
  static final int PAGE = 1_000;

  /** The table of the argument `table`. */
  Table table(Arguments given) {
    return Tables.get(service, name(given));
  }

  /** Its name, which may begin with the catalog's, with the branch that it or the session says. */
  String name(Arguments given) {
    return branch.on(nameIn(given.text("table")));
  }

  /** The name without the catalog's. */
  String nameIn(String name) {
    if (name.isEmpty()) throw LakeException.invalid("TABLE_NOT_NAMED", "say the table's name: table => 'shop.orders'");
    String prefix = catalog + ".";
    boolean isWhole = name.regionMatches(true, 0, prefix, 0, prefix.length()) && name.indexOf('.', prefix.length()) > 0;
    return isWhole ? name.substring(prefix.length()) : name;
  }

  /** The version that one of `version`, `time` and `tag` says; the newest if none is given. */
  long version(Table table, Arguments given) {
    if (List.of("version", "time", "tag").stream().filter(given::has).count() > 1) {
      throw LakeException.invalid("VERSION_TWICE", "say one of version, time and tag");
    }
    ResolveVersionRequest.Builder at = ResolveVersionRequest.newBuilder().setTableId(table.getTableId());
    if (given.has("version")) at.setVersion(given.number("version"));
    if (given.has("time")) at.setTimeUs(given.number("time"));
    if (given.has("tag")) at.setTag(given.text("tag"));
    return resolve(at);
  }

  long resolve(ResolveVersionRequest.Builder at) {
    ResolveVersionRequest request = at.build();
    return service.ask(stubs -> stubs.reads().resolveVersion(request)).getVersion();
  }

  /** Names by ids, of all tables. */
  Map<String, String> namesById() {
    Map<String, String> found = new HashMap<>();
    for (Table one : Tables.list(service, "", "", true)) found.put(one.getTableId(), one.getName());
    return found;
  }

  /** A part of a list, and the token of what follows. */
  record Page(List<InternalRow> rows, String next) {}

  /** Rows up to a limit, page by page. */
  static List<InternalRow> pages(long limit, Function<String, Page> ask) {
    List<InternalRow> found = new ArrayList<>();
    String token = "";
    do {
      Page page = ask.apply(token);
      found.addAll(page.rows());
      token = page.next();
    } while (!token.isEmpty() && found.size() < limit);
    return found.size() > limit ? found.subList(0, (int) limit) : found;
  }

  /** The argument `limit`. */
  static long limit(Arguments given) {
    if (!given.has("limit")) return Integer.MAX_VALUE;
    long limit = given.number("limit");
    if (limit < 1) throw LakeException.invalid("LIMIT_INVALID", "limit is " + limit + ": give a whole number from 1");
    return Math.min(limit, Integer.MAX_VALUE);
  }

  static int pageSize(long limit) {
    return (int) Math.min(limit, PAGE);
  }
}
