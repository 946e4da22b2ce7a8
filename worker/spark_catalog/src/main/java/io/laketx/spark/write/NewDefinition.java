package io.laketx.spark.write;

import io.laketx.v1.Alteration;
import io.laketx.v1.Table;

/** What a table is by the commit that brings its rows: one that gets its name, or one that is redefined. */
public record NewDefinition(String name, Table table, Table before) {
  /** A table that nobody sees yet becomes the one of that name. */
  public static NewDefinition named(String name, Table made) {
    return new NewDefinition(name, null, made);
  }

  /** A table that is there gets another definition. */
  public static NewDefinition of(Table table, Table there) {
    return new NewDefinition(null, table, there);
  }

  Alteration naming() {
    return Alteration.newBuilder().setName(name).build();
  }
}
