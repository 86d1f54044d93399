create table rows(id integer primary key, value integer, note text);
insert into rows with recursive n(i) as (select 0 union all select i + 1 from n where i < 600000)
    select i, (i * 7919) % 1000003, 'the note of row ' || i || ', which is ' || (i * 31 % 977) || ' long' from n;
create index by_value on rows(value);
create index by_note on rows(note);
select sum(a.value * b.id % 7) from rows a join rows b on a.value = b.value + 1 where b.id % 9 = 0;
update rows set value = value + 1 where id % 5 = 0;
select count(*), sum(value), max(note) from rows;
