package journal

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
)

// An id is "msg_", a letter that says what it is made of, and base32 digits. It has no dot, which
// Standard Webhooks forbids.
const (
	idByPosition = "msg_p"
	idByKey      = "msg_k"

	idSaltBytes = 5
	idHashBytes = 20
)

var idDigits = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// triggerID is the trigger's stable id: with a key a hash over producer and key, so that it is the
// same wherever and whenever that request is posted; else its position, with a part of the
// writer's random incarnation, so that two installations never give out the same id.
func triggerID(writer uint64, at Position, producer, key string) string {
	if key != "" {
		h := keyHash(producer, key)
		return idByKey + idDigits.EncodeToString(h[:idHashBytes])
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(at))
	binary.BigEndian.PutUint64(b[8:], writer)
	return idByPosition + idDigits.EncodeToString(b[:8+idSaltBytes])
}

// PositionOf returns the position that an id names, and reports whether it names one: a keyed
// trigger's does not. Whether a trigger is there, and has that id, only Load knows.
func PositionOf(id string) (Position, bool) {
	if len(id) < len(idByPosition) || id[:len(idByPosition)] != idByPosition {
		return 0, false
	}
	b, err := idDigits.DecodeString(id[len(idByPosition):])
	if err != nil || len(b) != 8+idSaltBytes {
		return 0, false
	}
	return Position(binary.BigEndian.Uint64(b)), true
}

// keyHash is SHA-256 over the producer, its length before it, and the key.
func keyHash(producer, key string) [sha256.Size]byte {
	b := appendString(make([]byte, 0, 128), producer)
	return sha256.Sum256(append(b, key...))
}
