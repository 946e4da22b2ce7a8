{#- What dbt-spark does for its own list of formats (Delta, Iceberg, Hudi), for tables of LakeTX. -#}

{% macro dbt_spark_validate_get_file_format(raw_file_format) %}
  {% do return(raw_file_format) %}
{% endmacro %}

{% macro dbt_spark_validate_get_incremental_strategy(raw_strategy, file_format) %}
  {% do return(raw_strategy) %}
{% endmacro %}

{#- A replaced table keeps its history, and is never missing. -#}
{% macro spark__create_table_as(temporary, relation, compiled_code, language='sql') -%}
  {%- if temporary -%}
    {{ create_temporary_view(relation, compiled_code) }}
  {%- else -%}
    create or replace table {{ relation }}
    {{ file_format_clause() }}
    {{ tblproperties_clause() }}
    {{ partition_cols(label='partitioned by') }}
    {{ comment_clause() }}
    as
    {{ compiled_code }}
  {%- endif -%}
{%- endmacro %}

{% materialization table, adapter='spark' %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {{ run_hooks(pre_hooks) }}
  {% call statement('main') -%}
    {{ create_table_as(False, target_relation, compiled_code) }}
  {%- endcall %}
  {% do persist_docs(target_relation, model) %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}

{#- The rows to merge are a temporary view: a session has those without a catalog for views. -#}
{% materialization snapshot, adapter='spark' %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set is_there = load_cached_relation(this) is not none -%}
  {%- set strategy_macro = strategy_dispatch(config.get('strategy')) -%}
  {%- set strategy = strategy_macro(model, 'snapshotted_data', 'source_data', model['config'], is_there) -%}
  {{ run_hooks(pre_hooks) }}
  {% if is_there %}
    {%- set staging = make_temp_relation(target_relation) -%}
    {% call statement('staging') -%}
      {{ create_temporary_view(staging, snapshot_staging_table(strategy, model['compiled_code'], target_relation)) }}
    {%- endcall %}
    {% call statement('main') -%}
      {{ snapshot_merge_sql(target=target_relation, source=staging, insert_cols=[]) }}
    {%- endcall %}
  {% else %}
    {% call statement('main') -%}
      {{ create_table_as(False, target_relation, build_snapshot_table(strategy, model['compiled_code'])) }}
    {%- endcall %}
  {% endif %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
