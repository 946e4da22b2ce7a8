{% snapshot order_amounts %}
{{ config(unique_key='id', strategy='timestamp', updated_at='arrived') }}

select id, amount, arrived from {{ ref('orders') }}
{% endsnapshot %}
