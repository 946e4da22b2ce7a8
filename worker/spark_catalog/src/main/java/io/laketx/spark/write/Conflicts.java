package io.laketx.spark.write;

import io.laketx.spark.service.LakeException;
import io.laketx.v1.Conflict;
import io.laketx.v1.Operation;
import java.util.Set;

/** A lost race as an error: to whom, by which rule, and what to do. */
public final class Conflicts {
  /** What a statement ends in that others overtook: a begin refuses what was planned for columns or versions that are gone. */
  static final Set<String> END_IN = Set.of(LostRaceException.REASON, "SCHEMA_VERSION_MISMATCH", "VERSION_RETIRED");

  private Conflicts() {}

  public static LakeException of(Conflict conflict, String table) {
    String winner = word(conflict.getWinnerOperation());
    String user = conflict.getWinnerPrincipal().getName();
    String where = conflict.getPartition().isEmpty() ? "" : ", partition " + conflict.getPartition();
    String said = conflict.getMessage().isEmpty() ? "" : ": " + conflict.getMessage();
    String text =
        word(conflict.getOperation()) + " on " + table + where + " lost a race" + said
            + "\n  winner: " + winner + (user.isEmpty() ? "" : " by " + user)
            + ", version " + conflict.getWinnerVersion() + ", transaction " + conflict.getWinnerTxnId()
            + "\n  rule:   " + word(conflict.getRule().name(), "CONFLICT_RULE_")
            + ", read version " + conflict.getReadVersion()
            + "\n  advice: " + advice(conflict);
    return new LostRaceException(text, conflict);
  }

  private static String advice(Conflict conflict) {
    return switch (conflict.getAdvice()) {
      case ADVICE_RELOAD -> "the table's schema or settings changed: look at the table, and run the statement again";
      default -> "run the statement again: it reads the newest version then (spark.laketx.on_conflict=rerun does this)";
    };
  }

  private static String word(Operation operation) {
    return word(operation.name(), "OPERATION_");
  }

  private static String word(String name, String prefix) {
    return name.substring(name.startsWith(prefix) ? prefix.length() : 0).replace('_', ' ');
  }
}
