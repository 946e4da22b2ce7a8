{{ config(tblproperties={'primary_key': 'day'}) }}

select arrived as day, count(*) as orders, sum(amount) as amount
from {{ ref('orders') }}
group by arrived
