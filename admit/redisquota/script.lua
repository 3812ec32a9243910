-- One decision over all its limits: all are read first, and written only if all pass.
--
-- KEYS: a key for each check. ARGV[1]: take, peek or refund. ARGV[2]: the instant in us, or ""
-- for the server's own. Then seven numbers for each check: algorithm, cost, epoch, and
--   bucket (0): k, one, oner, burst    a token is one + oner/k us
--   window (1): limit, slot, slots, 0  it counts in so many slots of so many us
-- Returns 1 or 0 for all, then for each check: allowed, never, epoch, remaining after it, and
-- the us until it may pass and until it is unused. {-1}: the server refuses to tell the time.
--
-- Every number is a whole one below 2^53, where doubles are exact; so products are made in limbs.
local op, now = ARGV[1], tonumber(ARGV[2])
if not now then
  local t = redis.pcall('TIME')
  if t.err then return {-1} end
  now = t[1] * 1000000 + t[2]
end
local floor, fmod, max, min = math.floor, math.fmod, math.max, math.min

-- below reports whether q + r/k is less than q2 + r2/k.
local function below(q, r, q2, r2) return q < q2 or q == q2 and r < r2 end

-- span returns what u tokens of c are: whole us, and a remainder in 1/k us.
local function span(c, u)
  local q, r = 0, 0
  if c.oner > 0 then
    for _, unit in ipairs({16777216, 4096, 1}) do
      local x = r * 4096 + floor(u / unit) % 4096 * c.oner
      r = fmod(x, c.k)
      q = q * 4096 + (x - r) / c.k
    end
  end
  return u * c.one + q, r
end

-- covers reports whether u tokens of c are at least gap + frac/k.
local function covers(c, u, gap, frac)
  local q, r = span(c, u)
  return not below(q, r, gap, frac)
end

-- used returns the least number of tokens, at most the burst, that covers gap + frac/k.
local function used(c, gap, frac)
  local u = min(c.burst, floor((gap + frac / c.k) / (c.one + c.oner / c.k)))
  while u < c.burst and not covers(c, u, gap, frac) do u = u + 1 end
  while u > 0 and covers(c, u - 1, gap, frac) do u = u - 1 end
  return u
end

-- A bucket's value: when it is full again (tat, frac), what of that was taken in its epoch and
-- may be given back (oq, ofr), the epoch, and the contract that the numbers are in.
local bucket = {fields = 9}

function bucket.read(c, s)
  local b = {tat = 0, frac = 0, oq = 0, ofr = 0, epoch = floor(now / 1000)}
  if not s then return b end
  local old = {k = s[6], one = s[7], oner = s[8], burst = s[9]}
  b.tat, b.frac, b.oq, b.ofr, b.epoch = s[1], s[2], s[3], s[4], s[5]
  if old.k ~= c.k or old.one ~= c.one or old.oner ~= c.oner or old.burst ~= c.burst then
    -- another contract: whole tokens are kept, never more
    local u = 0
    if b.tat >= now then u = used(old, b.tat - now, b.frac) end
    local q, r = span(c, c.burst - min(c.burst, old.burst - u))
    b = {tat = now + q, frac = r, oq = 0, ofr = 0, epoch = max(b.epoch + 1, floor(now / 1000))}
  end
  local fq, fr = span(c, c.burst)
  if below(fq, fr, b.tat - now, b.frac) then b.tat, b.frac = now + fq, fr end -- the clock was set back
  return b
end

function bucket.decide(c, b)
  local q, r = span(c, c.cost)
  local tat, frac = b.tat, b.frac
  if tat < now then tat, frac = now, 0 end
  tat, frac = tat + q, frac + r
  if frac >= c.k then tat, frac = tat + 1, frac - c.k end
  local fq, fr = span(c, c.burst)
  if below(fq, fr, tat - now, frac) then
    local wait = tat - now - fq
    if frac > fr then wait = wait + 1 end
    return false, wait, b
  end
  local n = {tat = tat, frac = frac, oq = b.oq, ofr = b.ofr, epoch = b.epoch}
  if below(b.tat - b.oq, b.frac, now, b.ofr) then -- it would be full without what was taken
    n.oq, n.ofr, n.epoch = 0, 0, max(b.epoch + 1, floor(now / 1000))
  end
  n.oq, n.ofr = n.oq + q, n.ofr + r
  if n.ofr >= c.k then n.oq, n.ofr = n.oq + 1, n.ofr - c.k end
  return true, 0, n
end

function bucket.most(c) return c.burst end

function bucket.state(c, b)
  local gap, frac = b.tat - now, b.frac
  if gap < 0 then gap, frac = 0, 0 end
  local reset = gap
  if frac > 0 then reset = gap + 1 end
  return c.burst - used(c, gap, frac), reset
end

function bucket.value(c, b)
  return {b.tat, b.frac, b.oq, b.ofr, b.epoch, c.k, c.one, c.oner, c.burst}, b.tat + 1 - now
end

function bucket.refund(c, b)
  if b.epoch % 65536 ~= c.epoch or b.tat < now then return end
  local q, r = span(c, c.cost)
  if below(b.oq, b.ofr, q, r) then q, r = b.oq, b.ofr end
  b.tat, b.frac, b.oq, b.ofr = b.tat - q, b.frac - r, b.oq - q, b.ofr - r
  if b.frac < 0 then b.tat, b.frac = b.tat - 1, b.frac + c.k end
  if b.ofr < 0 then b.oq, b.ofr = b.oq - 1, b.ofr + c.k end
  return b
end

-- A window's value: the newest slot, the width of slots, and what each took, newest first.
local window = {fields = 3}

function window.read(c, s)
  local w = {at = floor(now / c.slot), sum = 0}
  for i = 0, c.slots - 1 do w[i] = 0 end
  if not s then return w end
  local same = s[2] == c.slot and #s == c.slots + 2
  local at = floor(now / s[2])
  local age = at - min(s[1], at) -- a clock set back: as if it were taken now
  for i = 3, #s do
    local j = i - 3 + age
    if j < #s - 2 then
      if not same then j = 0 end -- another width: what counts, counts as taken now
      w[j] = w[j] + s[i]
      w.sum = w.sum + s[i]
    end
  end
  w.other = not same
  return w
end

-- ends returns when the slot of that age stops counting.
local function ends(c, w, age) return (w.at - age + c.slots) * c.slot - now end

function window.decide(c, w)
  if w.sum + c.cost <= c.limit then
    local n = {at = w.at, sum = w.sum + c.cost, epoch = w.at}
    for i = 0, c.slots - 1 do n[i] = w[i] end
    n[0] = n[0] + c.cost
    return true, 0, n
  end
  local sum = w.sum
  for i = c.slots - 1, 0, -1 do
    sum = sum - w[i]
    if sum + c.cost <= c.limit then return false, ends(c, w, i), w end
  end
  return false, 0, w -- never
end

function window.most(c) return c.limit end

function window.state(c, w)
  for i = 0, c.slots - 1 do
    if w[i] > 0 then return max(0, c.limit - w.sum), ends(c, w, i) end
  end
  return c.limit, 0
end

function window.value(c, w)
  local v = {w.at, c.slot}
  for i = 0, c.slots - 1 do v[i + 3] = w[i] end
  return v, c.slots * c.slot
end

function window.refund(c, w)
  local age = (w.at - c.epoch) % 65536
  if w.other or age >= c.slots then return end
  w[age] = w[age] - min(c.cost, w[age])
  return w
end

-- read returns the numbers at a key, nil if there are none, and whether they are unreadable.
local function read(key, kind)
  local v = redis.pcall('GET', key)
  if not v then return nil, false end
  if type(v) == 'table' then return nil, true end
  local s = {}
  for n in string.gmatch(v, '%d+') do s[#s + 1] = tonumber(n) end
  return s, #s < kind.fields or string.find(v, '[^%d ]') ~= nil
end

-- write stores numbers with an expiry, always: a key without one is repaired by it.
local function write(key, numbers, us)
  for i, n in ipairs(numbers) do numbers[i] = string.format('%.0f', n) end
  redis.call('SET', key, table.concat(numbers, ' '), 'PX', string.format('%.0f', floor(us / 1000) + 1000))
end

local checks, all = {}, 1
for i, key in ipairs(KEYS) do
  local a = {}
  for j = 1, 7 do a[j] = tonumber(ARGV[2 + (i - 1) * 7 + j]) end
  local c = {cost = a[2], epoch = a[3], key = key}
  if a[1] == 0 then
    c.kind, c.k, c.one, c.oner, c.burst = bucket, a[4], a[5], a[6], a[7]
  else
    c.kind, c.limit, c.slot, c.slots = window, a[4], a[5], a[6]
  end
  local s, unreadable = read(key, c.kind)
  if unreadable then return redis.error_reply('FAIRLANE key ' .. i .. ' holds what is no counter') end
  c.now = c.kind.read(c, s)
  checks[i] = c
end

if op == 'refund' then
  for _, c in ipairs(checks) do
    local left = c.kind.refund(c, c.now)
    if left then write(c.key, c.kind.value(c, left)) end
  end
  return {1}
end

local answer = {1}
for _, c in ipairs(checks) do
  c.never = c.cost > c.kind.most(c)
  c.ok, c.wait, c.after = false, 0, c.now
  if not c.never then c.ok, c.wait, c.after = c.kind.decide(c, c.now) end
  if not c.ok then answer[1] = 0 end
end
for _, c in ipairs(checks) do
  local remaining, reset = c.kind.state(c, c.after)
  if c.ok and answer[1] == 0 then remaining = remaining + c.cost end -- nothing is taken
  for _, n in ipairs({c.ok and 1 or 0, c.never and 1 or 0, (c.after.epoch or 0) % 65536, remaining, c.wait, reset}) do
    answer[#answer + 1] = n
  end
  if op == 'take' and answer[1] == 1 then write(c.key, c.kind.value(c, c.after)) end
end
return answer
