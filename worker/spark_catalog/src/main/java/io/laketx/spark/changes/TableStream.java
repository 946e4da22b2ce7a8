package io.laketx.spark.changes;

import io.laketx.spark.changes.Range.Looker;
import io.laketx.spark.changes.StreamOptions.Budget;
import io.laketx.spark.read.LakePartition;
import io.laketx.spark.read.Plan;
import io.laketx.spark.read.PlannedScan;
import io.laketx.spark.read.Shapes;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.Tasks;
import io.laketx.spark.read.Unit;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.Column;
import io.laketx.v1.DataFile;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.ResolveVersionRequest;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table as a stream: what it is when the stream begins, unless an option says another place, and then its commits, in
 * order. A batch has files of the first or of commits, never of both. Compactions change no row and pass unseen.
 *
 * <p>Of rows, what commits added is delivered: to a primary-key table the newest image of each key in the batch. A commit
 * that did more is refused or passed over. Of changes, each row says what happened to it.
 */
public final class TableStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  private static final long HEAD_NS = TimeUnit.MILLISECONDS.toNanos(200);
  private static final long VERSIONS_A_LOOK = 500;
  private static final Filter[] NO_FILTERS = {};

  private final String name;
  private final Snapshot table;
  private final StructType columns;
  private final StructType required;
  private final boolean isOfChanges;
  private final StreamOptions options;
  private final Looker look;
  private final StreamMark mark;
  private boolean isKept;
  private long head = -1;
  private long headNs;
  private long target = Long.MAX_VALUE;
  private long sameUntil; // the metadata are those of the table that was loaded, up to this version
  private boolean isChanged; // the version after it has others
  private Seen seen;
  private Shown shown;

  private TableStream(
      String name,
      Snapshot table,
      StructType columns,
      StructType required,
      boolean isOfChanges,
      CaseInsensitiveStringMap options,
      String checkpoint) {
    this.name = name;
    this.table = table;
    this.columns = columns;
    this.required = required;
    this.isOfChanges = isOfChanges;
    this.options = new StreamOptions(options);
    look = new Looker(table.service(), table.tableId());
    mark = new StreamMark(look, checkpoint, this.options.keepMs);
    sameUntil = table.meta().getHeadVersion();
  }

  public static TableStream ofRows(
      String name,
      Snapshot table,
      StructType columns,
      StructType required,
      CaseInsensitiveStringMap options,
      String checkpoint) {
    return new TableStream(name, table, columns, required, false, options, checkpoint);
  }

  static TableStream ofChanges(
      String name,
      Snapshot table,
      StructType columns,
      StructType required,
      CaseInsensitiveStringMap options,
      String checkpoint) {
    return new TableStream(name, table, columns, required, true, options, checkpoint);
  }

  /** The commits in (begin, end], as they were listed last. */
  private record Seen(long begin, long end, List<Commit> commits) {}

  /** The files that the table has at the version with which the stream begins. */
  private record Shown(long version, Shapes shapes, List<Piece> pieces) {}

  private record Piece(String path, Unit unit, long rows) {}

  // -- how far

  @Override
  public Offset initialOffset() {
    return mark.first(() -> options.first(look));
  }

  @Override
  public Offset deserializeOffset(String json) {
    return Position.parse(json);
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("it is asked with a limit");
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return ReadLimit.maxFiles((int) Math.min(options.filesMax, Integer.MAX_VALUE));
  }

  /** With its limits, of which Spark knows one, unless Spark asks for all. */
  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    Position from = checked(start);
    long to = Math.min(head(), target);
    mark.touch();
    Position until = next(from, to, options.new Budget(limit.equals(ReadLimit.allAvailable())));
    if (!until.equals(from)) mark.check();
    return until;
  }

  @Override
  public Offset reportLatestOffset() {
    return head < 0 ? null : Position.after(table.tableId(), head);
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    head = -1;
    target = head();
  }

  /** Asked of the service at most once in 200 ms, however often Spark asks here. */
  private long head() {
    if (head < 0 || System.nanoTime() - headNs >= HEAD_NS) {
      head = look.ask(ResolveVersionRequest.newBuilder()).getVersion();
      headNs = System.nanoTime();
    }
    return head;
  }

  /** A place in this table; from the first one on what comes after it is kept, and the table that was loaded is not. */
  private Position checked(Offset start) {
    Position from = (Position) start;
    if (!from.tableId().equals(table.tableId())) {
      throw LakeException.invalid(
          "CHECKPOINT_INVALID",
          "the checkpoint is one of another table, or of one that was dropped and made anew: give the query a checkpoint of"
              + " its own");
    }
    if (!isKept) {
      mark.first(() -> from);
      mark.keep(from.base());
      table.letGo();
      isKept = true;
    }
    return from;
  }

  private Position next(Position from, long to, Budget budget) {
    String id = table.tableId();
    lookForChange(to);
    if (isChanged && sameUntil < from.version()) throw changed(sameUntil + 1);
    if (from.isSnapshot()) {
      List<Piece> pieces = shownAt(from.version()).pieces;
      int read = from.filesOf(from.version());
      while (read < pieces.size()) {
        Piece one = pieces.get(read);
        if (!budget.takes(1, one.rows, one.unit.bytes())) break;
        read++;
      }
      return read < pieces.size() ? Position.inSnapshot(id, from.version(), read) : Position.after(id, from.version());
    }
    long begin = from.base();
    if (to <= begin) return from;
    long end = Math.min(Math.min(to, begin + VERSIONS_A_LOOK), sameUntil);
    if (end <= begin) throw changed(sameUntil + 1);
    Position at = from;
    for (Commit one : commits(begin, end)) {
      LakeException refusal = refusal(one);
      if (refusal != null) {
        if (budget.isUsed()) return at;
        throw refusal;
      }
      if (isPassed(one)) {
        at = Position.after(id, one.version());
      } else if (isWhole()) {
        if (!budget.takes(one.files().size(), one.rows(), one.bytes())) return at;
        at = Position.after(id, one.version());
      } else {
        List<LiveEntry> files = one.files();
        for (int read = from.filesOf(one.version()); read < files.size(); read++) {
          DataFile file = files.get(read).getFile();
          if (!budget.takes(1, file.getRows(), file.getBytes())) {
            return read == 0 ? at : Position.within(id, one.version(), read);
          }
        }
        at = Position.after(id, one.version());
      }
    }
    return Position.after(id, end);
  }

  /** Whether a batch takes whole commits: a primary-key table's must not show half of one. */
  private boolean isWhole() {
    return isOfChanges || table.isKeyed();
  }

  private boolean isPassed(Commit commit) {
    return !isOfChanges && !commit.onlyAdds();
  }

  /** Why the stream can't go on; null where it can. */
  private LakeException refusal(Commit commit) {
    if (isPassed(commit) && !options.skips) {
      return LakeException.invalid(
          "STREAM_SEES_CHANGES",
          name + ": version " + commit.version() + " (" + commit.operation() + ") did more than add rows: set the option "
              + "readChangeFeed to read changes, or skipChangeCommits to pass over such commits");
    }
    for (LiveEntry one : commit.files()) {
      if (one.getFile().getSchemaVersion() <= table.meta().getSchemaVersion()) continue;
      // a service of the release before doesn't say which commits changed metadata
      if (!sameColumns(table.columnsOf(one.getFile()), table.meta().getColumnsList())) return changed(commit.version());
    }
    return null;
  }

  /** Looks at the commits that came since the last look, up to the first one that changed metadata. */
  private void lookForChange(long to) {
    while (!isChanged && sameUntil < to) {
      long until = Math.min(to, sameUntil + VERSIONS_A_LOOK);
      Optional<Long> first = MetadataChange.first(look, sameUntil, until);
      isChanged = first.isPresent();
      sameUntil = first.map(version -> version - 1).orElse(until);
    }
  }

  private LakeException changed(long version) {
    return LakeException.invalid(
        "STREAM_METADATA_CHANGED",
        name + ": version " + version + " changed " + MetadataChange.words(look, table.meta(), version)
            + ": load the table anew and start the query again, it goes on from there");
  }

  private static boolean sameColumns(List<Column> some, List<Column> others) {
    if (some.size() != others.size()) return false;
    for (int at = 0; at < some.size(); at++) {
      Column one = some.get(at);
      Column other = others.get(at);
      boolean isSame = one.getColumnId() == other.getColumnId() && one.getName().equals(other.getName());
      if (!isSame || !one.getType().equals(other.getType())) return false;
    }
    return true;
  }

  // -- what is read

  private List<Commit> commits(long begin, long end) {
    if (seen == null || seen.begin > begin || seen.end < end) {
      seen = new Seen(begin, end, Commit.list(table, begin, end, null));
    }
    return seen.commits.stream().filter(one -> one.version() > begin && one.version() <= end).toList();
  }

  private Shown shownAt(long version) {
    if (shown != null && shown.version == version) return shown;
    Shapes shapes = new Shapes(table, required, NO_FILTERS, isOfChanges ? ChangeColumns.ALL : Set.of());
    Map<String, Object> said = Map.of();
    if (isOfChanges) {
      long timeUs = look.ask(ResolveVersionRequest.newBuilder().setVersion(version)).getCommitTimeUs();
      said = ChangeColumns.inserted(version, timeUs);
    }
    List<Piece> pieces = new ArrayList<>();
    for (PlannedScan.Placed one : new PlannedScan(table, shapes, Plan.of(table, version, List.of()), said).units()) {
      pieces.add(new Piece(one.path(), one.unit(), one.rows()));
    }
    pieces.sort(Comparator.comparing(Piece::path));
    shown = new Shown(version, shapes, pieces);
    return shown;
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    Position from = checked(start);
    Position to = (Position) end;
    if (from.isSnapshot()) {
      Shown what = shownAt(from.version());
      int last = to.isSnapshot() ? to.filesOf(from.version()) : what.pieces.size();
      List<Unit> units =
          what.pieces.subList(from.filesOf(from.version()), last).stream().map(Piece::unit).toList();
      return ofFiles(what.shapes, units);
    }
    shown = null;
    List<Commit> commits = commits(from.base(), to.version());
    if (isOfChanges) {
      return new PlannedChanges(table, columns, required, NO_FILTERS, ChangesMode.LOG, from.base(), commits).partitions();
    }
    Shapes shapes = new Shapes(table, required, NO_FILTERS, Set.of());
    List<LiveEntry> files = new ArrayList<>();
    for (Commit one : commits) {
      if (isPassed(one)) continue;
      int last = to.isPart() && to.version() == one.version() ? to.filesOf(one.version()) : one.files().size();
      files.addAll(one.files().subList(from.filesOf(one.version()), last));
    }
    if (table.isKeyed()) {
      if (files.stream().anyMatch(one -> one.getFile().getSetColumnsCount() > 0)) throw setsColumns();
      PlannedScan newest = new PlannedScan(table, shapes, files, Map.of());
      return ofFiles(shapes, newest.units().stream().map(PlannedScan.Placed::unit).toList());
    }
    return ofFiles(shapes, files.stream().map(one -> (Unit) PlannedScan.written(table, shapes, one, Map.of())).toList());
  }

  private LakeException setsColumns() {
    String said = name + ": images set single columns, and a stream of rows would lack the others: set the option readChangeFeed";
    return LakeException.invalid("PARTIAL_IMAGES", said);
  }

  private static InputPartition[] ofFiles(Shapes shapes, List<Unit> units) {
    List<InputPartition> found = new ArrayList<>();
    for (LakePartition one : Tasks.of(units)) found.add(new ChangesPartition.NewRows(shapes.all(), one, false));
    return found.toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new ChangesReaders();
  }

  @Override
  public void commit(Offset end) {
    mark.moveTo(((Position) end).base());
  }

  @Override
  public void stop() {
    mark.end();
  }

  @Override
  public String toString() {
    return name + (isOfChanges ? " changes" : "");
  }
}
