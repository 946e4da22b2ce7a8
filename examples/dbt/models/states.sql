{{ config(materialized='laketx_view', schedule='every 10 minutes') }}

select state, count(*) as orders, sum(amount) as amount
from {{ ref('orders') }}
where state <> 'it''s lost'
group by state
