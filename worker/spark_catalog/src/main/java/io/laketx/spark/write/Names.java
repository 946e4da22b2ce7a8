package io.laketx.spark.write;

import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;

/** Columns as Spark's references. */
final class Names {
  private Names() {}

  /** One column, whatever letters its name has. */
  static NamedReference column(String name) {
    return Expressions.column("`" + name.replace("`", "``") + "`");
  }
}
