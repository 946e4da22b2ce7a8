package io.laketx.spark.write;

import io.laketx.spark.define.Tables;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Service;
import io.laketx.v1.DataFile;
import io.laketx.v1.GetWarehouseRequest;
import io.laketx.v1.Limit;
import io.laketx.v1.ListFilesRequest;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.SetWarehouseRequest;
import io.laketx.v1.Table;
import io.laketx.v1.Warehouse;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The mark of a warehouse, without which nothing is deleted there: the first writer leaves it, where nothing says that the
 * location is another one's. worker/files/warehouse.py tells when that is so, and does the same.
 */
final class WarehouseMark {
  private static final Logger LOG = LoggerFactory.getLogger(WarehouseMark.class);
  private static final String PLACE = "/_laketx/warehouse.json";
  private static final int TABLES_LOOKED_AT = Limit.LIMIT_TABLES_LOOKED_AT_VALUE;
  private static final Pattern SERVICE = Pattern.compile("\"service_id\"\\s*:\\s*\"([^\"]*)\"");
  private static final Pattern EPOCH = Pattern.compile("\"history_epoch\"\\s*:\\s*\"([^\"]*)\"");
  private static final Map<String, String> SCHEMES = Map.of("s3a", "s3", "s3n", "s3");
  private static final Set<Service> LOOKED_AT = ConcurrentHashMap.newKeySet();

  private record Mark(String serviceId, String epoch) {}

  private WarehouseMark() {}

  /** Called before a write begins; looks once. An operator sets a mark that can't be left here. */
  static void leave(Service service) {
    if (!LOOKED_AT.add(service)) return;
    try {
      leaveIfProven(service);
    } catch (IOException | UncheckedIOException error) {
      LOG.warn("the warehouse has no mark, and none can be written: {}", error.getMessage());
    }
  }

  private static void leaveIfProven(Service service) throws IOException {
    String warehouse = service.address().warehouse();
    String here = location(warehouse);
    GetWarehouseRequest asking = GetWarehouseRequest.getDefaultInstance();
    Warehouse known = service.ask(stubs -> stubs.maintenance().getWarehouse(asking)).getWarehouse();
    boolean isElsewhere = !known.getLocation().isEmpty() && !known.getLocation().equals(here);
    if (known.getMarked() || isElsewhere) return;
    Mark mine = new Mark(known.getServiceId(), known.getHistoryEpoch());
    Optional<Mark> found = read(warehouse);
    if (found.isPresent() && !found.get().equals(mine)) return;
    boolean isKnown = found.isPresent() || !known.getLocation().isEmpty() || known.getUnused();
    if (!isKnown && !holdsFiles(service, warehouse)) return;
    if (!note(service, here, false).getLocation().equals(here)) return;
    if (found.isEmpty()) {
      String text = "{\"service_id\": \"" + mine.serviceId + "\", \"history_epoch\": \"" + mine.epoch + "\"}\n";
      ParquetOut.writeWhole(warehouse + PLACE, text.getBytes(StandardCharsets.UTF_8));
    }
    note(service, here, true);
  }

  private static Warehouse note(Service service, String location, boolean isMarked) {
    SetWarehouseRequest request = SetWarehouseRequest.newBuilder().setLocation(location).setMarked(isMarked).build();
    return service.ask(stubs -> stubs.maintenance().setWarehouse(request)).getWarehouse();
  }

  /** The location as the service records it: one spelling for each, where that can be known. */
  static String location(String warehouse) throws IOException {
    if (warehouse.startsWith("file:")) return real(Path.of(URI.create(warehouse).getPath()));
    int colon = warehouse.indexOf("://");
    if (colon < 0) return real(Path.of(warehouse));
    String scheme = warehouse.substring(0, colon);
    return SCHEMES.getOrDefault(scheme, scheme) + warehouse.substring(colon).replaceAll("[?].*", "").replaceAll("/+$", "");
  }

  /** Without links, also of what is not there yet. */
  private static String real(Path path) throws IOException {
    Path whole = path.toAbsolutePath().normalize();
    if (whole.toFile().exists()) return whole.toRealPath().toString();
    return whole.getParent() == null ? whole.toString() : Path.of(real(whole.getParent())).resolve(whole.getFileName()).toString();
  }

  private static Optional<Mark> read(String warehouse) throws IOException {
    String text;
    try {
      text = new String(ParquetOut.readFile(warehouse + PLACE), StandardCharsets.UTF_8);
    } catch (FileNotFoundException absent) {
      return Optional.empty();
    }
    Matcher service = SERVICE.matcher(text);
    Matcher epoch = EPOCH.matcher(text);
    return Optional.of(new Mark(service.find() ? service.group(1) : "", epoch.find() ? epoch.group(1) : ""));
  }

  /** Whether files of tables are here, and none of those looked at is missing. */
  private static boolean holdsFiles(Service service, String warehouse) throws IOException {
    int looked = 0;
    for (Table one : Tables.list(service, "", "", false)) {
      if (one.getHeadVersion() == 0 || looked == TABLES_LOOKED_AT) continue;
      Optional<DataFile> oldest = ownFile(service, one);
      if (oldest.isEmpty()) continue;
      looked++;
      if (!ParquetOut.exists(warehouse + "/" + Snapshot.folderId(one) + "/" + oldest.get().getPath())) return false;
    }
    return looked > 0;
  }

  /** Whether it is a file of the table's own. */
  private static boolean isStored(DataFile file) {
    return !file.getExternal() && !file.getInlined();
  }

  private static Optional<DataFile> ownFile(Service service, Table table) {
    ListFilesRequest request =
        ListFilesRequest.newBuilder().setTableId(table.getTableId()).setVersion(table.getHeadVersion()).build();
    try {
      return service.ask(
          stubs -> {
            Optional<DataFile> found = Optional.empty();
            var parts = stubs.reads().listFiles(request);
            while (parts.hasNext()) {
              for (LiveEntry one : parts.next().getEntriesList()) {
                if (found.isEmpty() && one.hasFile() && isStored(one.getFile())) found = Optional.of(one.getFile());
              }
            }
            return found;
          });
    } catch (LakeException gone) {
      return Optional.empty();
    }
  }
}
