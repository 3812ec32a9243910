package strictyaml

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// IsMapping reports whether n is a mapping of keys to values.
func IsMapping(n ast.Node) bool {
	return n.Type() == ast.MappingType || n.Type() == ast.MappingValueType
}

// Pairs are the entries of a mapping; none for anything else.
func Pairs(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

// Key is a key's text; "" for a key that is not plain text.
func Key(kv *ast.MappingValueNode) string {
	switch k := kv.Key.(type) {
	case *ast.StringNode:
		return k.Value
	case *ast.IntegerNode, *ast.BoolNode, *ast.FloatNode, *ast.NullNode:
		return k.GetToken().Value
	}
	return ""
}

// Found says what stands at n, to be put behind a rule that it breaks. It repeats the value: not for secrets.
func Found(n ast.Node) string {
	switch n.Type() {
	case ast.NullType:
		return ", found nothing (leave the key out for the default)"
	case ast.MappingType, ast.MappingValueType:
		return ", found a mapping"
	case ast.SequenceType:
		return ", found a list"
	case ast.AnchorType, ast.AliasType, ast.TagType:
		return ", found an anchor, alias or tag, which are not read"
	}
	s := n.GetToken().Value
	if len(s) > 60 {
		s = s[:60] + "..."
	}
	return ", found " + strconv.QuoteToASCII(s)
}

// The readers of values report whether n is one. A number in quotes is a text, and no other text is a number.

// Text reads a text, quoted or plain, or a block of lines.
func Text(n ast.Node) (string, bool) {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value, true
	case *ast.LiteralNode: // | and >
		return s.Value.Value, true
	}
	return "", false
}

// Whole reads a whole number that an int64 holds.
func Whole(n ast.Node) (int64, bool) {
	i, is := n.(*ast.IntegerNode)
	if !is {
		return 0, false
	}
	switch v := i.Value.(type) {
	case int64:
		return v, true
	case uint64:
		return int64(v), v <= math.MaxInt64
	}
	return 0, false
}

// Number reads a number; .inf and .nan are none.
func Number(n ast.Node) (float64, bool) {
	if f, is := n.(*ast.FloatNode); is {
		return f.Value, true
	}
	i, is := Whole(n)
	return float64(i), is
}

// List reads a list of at most so many items, each with read; all must pass. An empty list is not nil.
func List[T any](n ast.Node, most int, read func(ast.Node) (T, bool)) ([]T, bool) {
	s, is := n.(*ast.SequenceNode)
	if !is || len(s.Values) > most {
		return nil, false
	}
	all := make([]T, len(s.Values))
	for i, item := range s.Values {
		if all[i], is = read(item); !is {
			return nil, false
		}
	}
	return all, true
}

var errDuration = errors.New("not a number with a unit")

// ParseDuration reads "15s", "1h30m", "3d". The unit is required. "d" is 24 hours and stands alone.
func ParseDuration(s string) (time.Duration, error) {
	if n, ok := strings.CutSuffix(s, "d"); ok {
		days, err := strconv.ParseUint(n, 10, 16)
		if err != nil {
			return 0, errDuration
		}
		return time.Duration(days) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || !strings.ContainsAny(s, "smh") { // it takes 0 without a unit
		return 0, errDuration
	}
	return d, nil
}
