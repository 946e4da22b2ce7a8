{{ config(
    materialized='incremental',
    incremental_strategy='merge',
    unique_key='id',
    tblproperties={'primary_key': 'id', 'buckets': '2'},
) }}

select
  id,
  max_by(state, arrived) as state,
  max_by(amount, arrived) as amount,
  max(arrived) as arrived
from {{ ref('raw_orders') }}
where arrived <= date'{{ var("until") }}'
{% if is_incremental() %}
  and arrived > (select max(arrived) from {{ this }})
{% endif %}
group by id
