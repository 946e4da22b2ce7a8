{{ config(materialized='incremental', incremental_strategy='insert_overwrite', partition_by='arrived') }}

select arrived, id, amount
from {{ ref('raw_orders') }}
where arrived <= date'{{ var("until") }}'
{% if is_incremental() %}
  and arrived >= (select max(arrived) from {{ this }})
{% endif %}
