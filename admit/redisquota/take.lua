-- One decision over all its limits: all are read first, and recorded only if all pass.
--
-- KEYS: a key for each check. ARGV[1]: take or peek. ARGV[2]: the instant in us, or "" for the
-- server's own. Then eleven packed numbers for each check: algorithm, cost, epoch, and
--   bucket (0)  k, one, oner, burst, q, r, fq, fr  a token is one + oner/k us, the cost q + r/k,
--                                                  the burst fq + fr/k
--   window (1)  limit, slot, slots                 it counts in so many slots of so many us
-- Returns 1 or 0 for all, then for each check: allowed, never, epoch, remaining after it, and
-- the us until it may pass and until it is unused. {-1}: the server refuses to tell the time.
--
-- Every number is a whole one below 2^53, where doubles are exact; what could be larger is not
-- multiplied but added, or made in limbs.
local op, now = ARGV[1], tonumber(ARGV[2])
if not now then
  local t = redis.pcall('TIME')
  if t.err then return {-1} end
  now = t[1] * 1000000 + t[2]
end
local floor, fmod, max, min = math.floor, math.fmod, math.max, math.min
local pack, take = struct.pack, op == 'take'
local BUCKET = '<c2i8i8i8i8i8i8i8i8i8'

-- span returns what u tokens are: whole us, and a remainder in 1/k us.
local function span(u, k, one, oner)
  if oner == 0 then return u * one, 0 end
  local x = floor(u / 16777216) * oner
  local r = fmod(x, k)
  local q = (x - r) / k
  x = r * 4096 + floor(u / 4096) % 4096 * oner
  r = fmod(x, k)
  q = q * 4096 + (x - r) / k
  x = r * 4096 + u % 4096 * oner
  r = fmod(x, k)
  return u * one + q * 4096 + (x - r) / k, r
end

-- used returns the least number of tokens, at most the burst, that covers gap + frac/k.
local function used(gap, frac, k, one, oner, burst)
  if oner == 0 and frac == 0 then return min(burst, floor((gap + one - 1) / one)) end
  local function covers(u)
    local q, r = span(u, k, one, oner)
    return q > gap or q == gap and r >= frac
  end
  local u = min(burst, floor((gap + frac / k) / (one + oner / k)))
  while u < burst and not covers(u) do u = u + 1 end
  while u > 0 and covers(u - 1) do u = u - 1 end
  return u
end

-- bucket decides by the value v: when it is full again (tat, frac), what of that was taken in its
-- epoch and may be given back (oq, ofr), the epoch, and the contract that the numbers are in.
-- Like window it returns allowed, epoch, remaining, wait, reset, and what to store for how long.
local function bucket(v, cost, k, one, oner, burst, q, r, fq, fr)
  local tat, frac, oq, ofr, epoch, other = 0, 0, 0, 0, floor(now / 1000), false
  if v then
    local _, k0, one0, oner0, burst0
    _, tat, frac, oq, ofr, epoch, k0, one0, oner0, burst0 = struct.unpack(BUCKET, v)
    if k0 ~= k or one0 ~= one or oner0 ~= oner or burst0 ~= burst then
      -- another contract: whole tokens are kept, never more
      local u = 0
      if tat >= now then u = used(tat - now, frac, k0, one0, oner0, burst0) end
      tat, frac = span(burst - min(burst, burst0 - u), k, one, oner)
      tat, oq, ofr, epoch, other = now + tat, 0, 0, max(epoch + 1, floor(now / 1000)), true
    end
    if tat - now > fq or tat - now == fq and frac > fr then -- the clock was set back
      tat, frac, other = now + fq, fr, true
    end
  end
  local t, f = tat, frac
  if t < now then t, f = now, 0 end
  local ok, wait = cost <= burst, 0
  if ok then
    local t2, f2 = t + q, f + r
    if f2 >= k then t2, f2 = t2 + 1, f2 - k end
    wait = t2 - now - fq
    if wait > 0 or wait == 0 and f2 > fr then
      ok = false
      if f2 > fr then wait = wait + 1 end
    else
      if tat - oq < now or tat - oq == now and frac < ofr then -- full, but for what may be given back
        oq, ofr, epoch = 0, 0, max(epoch + 1, floor(now / 1000))
      end
      oq, ofr = oq + q, ofr + r
      if ofr >= k then oq, ofr = oq + 1, ofr - k end
      t, f, wait = t2, f2, 0
    end
  end
  local reset, value, store = t - now, nil, nil
  if f > 0 then reset = reset + 1 end
  if ok and take then store = pack(BUCKET, 'b1', t, f, oq, ofr, epoch, k, one, oner, burst) end
  if other then value = pack(BUCKET, 'b1', tat, frac, oq, ofr, epoch, k, one, oner, burst) end
  return ok, epoch, burst - used(t - now, f, k, one, oner, burst), wait, reset, store, value, reset
end

-- window decides by the value v: the newest slot, the width of slots, and what each took, newest
-- first.
local function window(v, cost, limit, slot, slots)
  local at, sum, other, c, value, store = floor(now / slot), 0, false, {}, nil, nil
  for i = 1, slots do c[i] = 0 end
  if v then
    local n = (#v - 2) / 8
    local w = {struct.unpack('<c2' .. string.rep('i8', n), v)}
    local last = floor(now / w[3])
    local same, age = w[3] == slot and n == slots + 2, max(0, last - w[2])
    other = not same or w[2] > last -- another width: what counts, counts as taken now; or a clock set back
    for i = 1, n - 2 - age do
      local j = same and i + age or 1
      c[j] = c[j] + w[i + 3]
      sum = sum + w[i + 3]
    end
  end
  local function packed() return pack('<c2' .. string.rep('i8', slots + 2), 'w1', at, slot, unpack(c)) end
  if other then value = packed() end
  local ok, wait, reset = sum + cost <= limit, 0, 0
  if ok then
    c[1], sum = c[1] + cost, sum + cost
    if take then store = packed() end
  elseif cost <= limit then
    local s = sum
    for i = slots, 1, -1 do
      s = s - c[i]
      if s + cost <= limit then
        wait = (at - i + 1 + slots) * slot - now
        break
      end
    end
  end
  for i = 1, slots do
    if c[i] > 0 then
      reset = (at - i + 1 + slots) * slot - now
      break
    end
  end
  return ok, at, max(0, limit - sum), wait, reset, store, value, slots * slot
end

local all, answer, stores, others, lives, costs = 1, {1}, {}, {}, {}, {}
for i = 1, #KEYS do
  local a, cost, _, p1, p2, p3, p4, p5, p6, p7, p8 = struct.unpack('<i8i8i8i8i8i8i8i8i8i8i8', ARGV[i + 2])
  local v = redis.pcall('GET', KEYS[i])
  local kind = a == 0 and 'b1' or 'w1'
  if v and (type(v) == 'table' or #v < 26 or string.sub(v, 1, 2) ~= kind or #v % 8 ~= 2 or a == 0 and #v ~= 74) then
    return redis.error_reply('FAIRLANE key ' .. i .. ' holds what is no counter')
  end
  local ok, epoch, remaining, wait, reset, most
  if a == 0 then
    most, ok, epoch, remaining, wait, reset, stores[i], others[i], lives[i] = p4, bucket(v, cost, p1, p2, p3, p4, p5, p6, p7, p8)
  else
    most, ok, epoch, remaining, wait, reset, stores[i], others[i], lives[i] = p1, window(v, cost, p1, p2, p3)
  end
  if not ok then all = 0 end
  local n = i * 6 - 4
  answer[n], answer[n + 1], answer[n + 2] = ok and 1 or 0, cost > most and 1 or 0, epoch % 65536
  answer[n + 3], answer[n + 4], answer[n + 5] = remaining, wait, reset
  costs[i] = cost
end
answer[1] = all

for i = 1, #KEYS do
  local value = stores[i]
  if all == 0 then
    value = nil
    if answer[i * 6 - 4] == 1 then answer[i * 6 - 1] = answer[i * 6 - 1] + costs[i] end -- nothing is taken
  end
  value = value or others[i] -- what was used, in the terms of the contract and clock that hold from now on
  if value then -- always with an expiry: a key without one is repaired by it
    redis.call('SET', KEYS[i], value, 'PX', string.format('%.0f', floor(lives[i] / 1000) + 1000))
  end
end
return answer
