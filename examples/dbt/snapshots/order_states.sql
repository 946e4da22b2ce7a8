{% snapshot order_states %}
{{ config(unique_key='id', strategy='check', check_cols=['state']) }}

select id, state from {{ ref('orders') }}
{% endsnapshot %}
