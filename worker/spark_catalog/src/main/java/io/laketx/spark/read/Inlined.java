package io.laketx.spark.read;

import com.google.protobuf.ByteString;
import io.laketx.spark.service.Service;
import io.laketx.v1.InlinedFile;
import io.laketx.v1.Limit;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.ReadInlinedRequest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Files whose rows MetaService keeps itself: nothing is at their paths. */
public final class Inlined {
  private static final int PATHS_MAX = Limit.LIMIT_INLINED_PATHS_VALUE; // of one request: the longest fit into a message

  private Inlined() {}

  /** The entries, and in those of inlined files their rows. The snapshot keeps them readable. */
  public static List<LiveEntry> filled(Snapshot snapshot, List<LiveEntry> entries) {
    List<String> paths = new ArrayList<>();
    for (LiveEntry one : entries) {
      if (lacksRows(one)) paths.add(one.getFile().getPath());
    }
    if (paths.isEmpty()) return entries;
    Map<String, ByteString> contents = new HashMap<>();
    for (int from = 0; from < paths.size(); from += PATHS_MAX) {
      ask(snapshot.service(), snapshot.tableId(), paths.subList(from, Math.min(from + PATHS_MAX, paths.size())), contents);
    }
    List<LiveEntry> found = new ArrayList<>(entries);
    found.replaceAll(one -> lacksRows(one) ? with(one, contents.get(one.getFile().getPath())) : one);
    return found;
  }

  private static boolean lacksRows(LiveEntry one) {
    return one.hasFile() && one.getFile().getInlined() && one.getFile().getContent().isEmpty();
  }

  private static LiveEntry with(LiveEntry one, ByteString content) {
    return one.toBuilder().setFile(one.getFile().toBuilder().setContent(content)).build();
  }

  private static void ask(Service service, String tableId, List<String> paths, Map<String, ByteString> contents) {
    ReadInlinedRequest request = ReadInlinedRequest.newBuilder().setTableId(tableId).addAllPaths(paths).build();
    service.ask(
        stubs -> {
          stubs
              .reads()
              .readInlined(request)
              .forEachRemaining(
                  part -> {
                    for (InlinedFile one : part.getFilesList()) contents.put(one.getPath(), one.getContent());
                  });
          return null;
        });
  }
}
