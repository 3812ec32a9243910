-- Gives back what one decision took, as far as it still counts. Keys, arguments and values are
-- those of take.lua; the epoch of a check is that of its decision. What is gone, or in the terms
-- of another contract, stays taken.
local now = tonumber(ARGV[2])
if not now then
  local t = redis.pcall('TIME')
  if t.err then return {-1} end
  now = t[1] * 1000000 + t[2]
end
local BUCKET = '<c2i8i8i8i8i8i8i8i8i8'

local function bucket(v, epoch, k, one, oner, burst, q, r)
  local _, tat, frac, oq, ofr, e, k0, one0, oner0, burst0 = struct.unpack(BUCKET, v)
  if k0 ~= k or one0 ~= one or oner0 ~= oner or burst0 ~= burst or e % 65536 ~= epoch or tat < now then return nil end
  if oq < q or oq == q and ofr < r then q, r = oq, ofr end
  tat, frac, oq, ofr = tat - q, frac - r, oq - q, ofr - r
  if frac < 0 then tat, frac = tat - 1, frac + k end
  if ofr < 0 then oq, ofr = oq - 1, ofr + k end
  return struct.pack(BUCKET, 'b1', tat, frac, oq, ofr, e, k, one, oner, burst), math.max(0, tat - now)
end

local function window(v, cost, epoch, slot, slots)
  local n = (#v - 2) / 8
  local format = '<c2' .. string.rep('i8', n)
  local w = {struct.unpack(format, v)}
  w[n + 2] = nil -- where unpack ended
  local age = (w[2] - epoch) % 65536
  local at = math.floor(now / slot)
  if w[3] ~= slot or n ~= slots + 2 or at < w[2] or age + at - w[2] >= slots then return nil end
  w[age + 4] = w[age + 4] - math.min(cost, w[age + 4])
  return struct.pack(format, unpack(w)), slots * slot
end

for i = 1, #KEYS do
  local a, cost, epoch, p1, p2, p3, p4, p5, p6 = struct.unpack('<i8i8i8i8i8i8i8i8i8i8i8', ARGV[i + 2])
  local v = redis.pcall('GET', KEYS[i])
  if type(v) == 'string' and #v % 8 == 2 then
    local value, us
    if a == 0 and #v == 74 and string.sub(v, 1, 2) == 'b1' then
      value, us = bucket(v, epoch, p1, p2, p3, p4, p5, p6)
    elseif a == 1 and #v >= 26 and string.sub(v, 1, 2) == 'w1' then
      value, us = window(v, cost, epoch, p2, p3)
    end
    if value then
      redis.call('SET', KEYS[i], value, 'PX', string.format('%.0f', math.floor(us / 1000) + 1000))
    end
  end
end
return {1}
