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

{#- A materialized view, built by the data source in python/pyspark_laketx_view.py. The model is in DuckDB's SQL. -#}
{% materialization laketx_view, adapter='spark' %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- if env_var('LAKETX_BRANCH', '') -%}
    {{ exceptions.raise_compiler_error('views are not branched: run dbt with --exclude config.materialized:laketx_view') }}
  {%- endif -%}
  {%- set options = {
    'uri': env_var('LAKETX_URI'),
    'warehouse': env_var('LAKETX_WAREHOUSE'),
    'name': this.schema ~ '.' ~ this.identifier,
    'query': compiled_code,
    'comment': model.description,
    'schedule': config.get('schedule', ''),
    'target_lag': config.get('target_lag', ''),
    'strict': config.get('strict', false) | string | lower,
    'full': flags.FULL_REFRESH | string | lower,
  } -%}
  {{ run_hooks(pre_hooks) }}
  {% call statement('built') -%}
    create or replace temporary view laketx_built using laketx_view options (
      {%- for name, value in options.items() %}
      {{ name }} '{{ value | replace("\\", "\\\\") | replace("'", "\\'") }}'{{ "," if not loop.last }}
      {%- endfor %}
    )
  {%- endcall %}
  {% call statement('main', fetch_result=true) -%}
    select * from laketx_built
  {%- endcall %}
  {%- set built = load_result('main')['data'][0] -%}
  {{ log(this ~ ': ' ~ built[0] ~ ', version ' ~ built[1] ~ (', ' ~ built[2] if built[2] else ''), info=true) }}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
