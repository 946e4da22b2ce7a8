package io.laketx.spark.write;

import io.laketx.spark.service.LakeException;
import io.laketx.v1.Conflict;
import io.laketx.v1.ConflictRule;
import io.laketx.v1.Limit;
import io.laketx.v1.Table;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What a statement does after a lost race. */
public enum ConflictPolicy {
  /** It fails. */
  FAIL,
  /** An INSERT that read nothing commits the same files at the new head. */
  RESUBMIT,
  /** Such an INSERT does so, too; another statement runs again. */
  RERUN;

  static final int ATTEMPTS_MAX = Limit.LIMIT_ATTEMPTS_VALUE;
  private static final String OPTION = "on_conflict";
  private static final String SETTING = "spark.laketx.on_conflict";
  private static final String PROPERTY = "write.on_conflict";
  private static final String AUTO = "auto";
  private static final Set<ConflictRule> OF_METADATA =
      Set.of(ConflictRule.CONFLICT_RULE_METADATA_CHANGED, ConflictRule.CONFLICT_RULE_PROTOCOL_CHANGED);

  /**
   * The write's option counts first, then the session's setting, then the table's property; without any it is `resubmit`
   * for blind INSERTs, `fail` for everything else.
   *
   * <p>Where files depend on what was read they can't be resubmitted: the write's option is refused, and the others mean
   * `fail`.
   */
  static ConflictPolicy of(CaseInsensitiveStringMap options, Table meta, boolean isBlind) {
    String asTable = meta.getPropertiesOrDefault(PROPERTY, AUTO);
    if (asTable.equals(AUTO)) asTable = (isBlind ? RESUBMIT : FAIL).word();
    ConflictPolicy said = named(options.getOrDefault(OPTION, ParquetOut.setting(SETTING, asTable)));
    if (said != RESUBMIT || isBlind) return said;
    if (!options.containsKey(OPTION)) return FAIL;
    throw LakeException.invalid(
        "POLICY_INVALID",
        "on_conflict=resubmit is for an INSERT that reads nothing of its table: say rerun, which computes the rows again");
  }

  /** That of a procedure, which changes what is there; `said`: its argument, or empty. */
  public static ConflictPolicy ofProcedure(String said, Table meta) {
    return of(new CaseInsensitiveStringMap(said.isEmpty() ? Map.of() : Map.of(OPTION, said)), meta, false);
  }

  private static ConflictPolicy named(String said) {
    for (ConflictPolicy one : values()) {
      if (one.word().equals(said)) return one;
    }
    throw LakeException.invalid("POLICY_INVALID", "on_conflict is one of fail, resubmit and rerun, not '" + said + "'");
  }

  private String word() {
    return name().toLowerCase(Locale.ROOT);
  }

  /** Whether the files fit what the table is now. */
  static boolean mayResubmit(Conflict conflict) {
    return !OF_METADATA.contains(conflict.getRule());
  }

  /** Milliseconds before an attempt; the second is the first that waits. */
  static long pauseMs(int attempt, double share) {
    return (long) (Math.min(5_000, 100L << (attempt - 2)) * share);
  }
}
