package tuple_test

import (
	"bytes"
	"encoding/gob"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/varvedb/varve/layer/kv"
	. "github.com/varvedb/varve/layer/kv/tuple"
)

var testUUID = UUID{0x11, 0x00, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF, 0x11, 0x00, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF}

// loadGolden reads the vectors that Apple ships in the module of its Go binding.
func loadGolden(t *testing.T) map[string][]byte {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/apple/foundationdb/bindings/go").Output()
	require.NoError(t, err, "go list -m of the FoundationDB binding; `go mod download` fetches it")
	f, err := os.Open(filepath.Join(strings.TrimSpace(string(out)), "src", "fdb", "tuple", "testdata", "tuples.golden"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var golden map[string][]byte
	require.NoError(t, gob.NewDecoder(f).Decode(&golden))
	require.NotEmpty(t, golden)
	return golden
}

func TestGoldenVectorsRoundTrip(t *testing.T) {
	for name, packed := range loadGolden(t) {
		unpacked, err := Unpack(packed)
		require.NoError(t, err, name)
		require.NotEmpty(t, unpacked, name)
		require.Equal(t, packed, unpacked.Pack(), name)
	}
}

func TestGoldenVectorsPack(t *testing.T) {
	golden := loadGolden(t)
	repeat := func(e Element, n int) Tuple { return slices.Repeat(Tuple{e}, n) }
	for name, want := range map[string]Tuple{
		"Simple":         {testUUID, "foobarbaz", 1234, nil},
		"Namespaces":     {testUUID, "github", "com", "apple", "foundationdb", "tree"},
		"ManyStrings":    repeat("namespace", 8),
		"ManyStringsNil": repeat("nam\x00es\xFFpace", 8),
		"ManyBytes":      repeat([]byte("namespace"), 20),
		"ManyBytesNil":   repeat([]byte{0xFF, 0x00, 0xFF}, 20),
		"LargeBytes":     {testUUID, bytes.Repeat([]byte("abcd"), 20)},
		"LargeBytesNil":  {testUUID, bytes.Repeat([]byte{0xFF, 0x0, 0xFF}, 20)},
		"UUIDs":          {testUUID, true, testUUID, false, testUUID, true, testUUID, false, testUUID, true},
		"NilCases":       {"\x00", "\x00\xFF", "\x00\x00\x00", "\xFF\x00", ""},
	} {
		require.Equal(t, golden[name], want.Pack(), name)
	}
}

// Bytes computed by hand from design/tuple.md of FoundationDB.
func TestKnownEncodings(t *testing.T) {
	for _, c := range []struct {
		tuple Tuple
		bytes string
	}{
		{Tuple{}, ""},
		{Tuple{nil}, "\x00"},
		{Tuple{[]byte("foo\x00bar")}, "\x01foo\x00\xffbar\x00"},
		{Tuple{"F\u00d4O\x00bar"}, "\x02F\xc3\x94O\x00\xffbar\x00"},
		{Tuple{Tuple{[]byte("foo\x00bar"), nil, Tuple{}}}, "\x05\x01foo\x00\xffbar\x00\x00\xff\x05\x00\x00"},
		{Tuple{int64(0)}, "\x14"},
		{Tuple{int64(1)}, "\x15\x01"},
		{Tuple{int64(-1)}, "\x13\xfe"},
		{Tuple{int64(255)}, "\x15\xff"},
		{Tuple{int64(256)}, "\x16\x01\x00"},
		{Tuple{int64(-255)}, "\x13\x00"},
		{Tuple{int64(-256)}, "\x12\xfe\xff"},
		{Tuple{int64(-5551212)}, "\x11\xab\x4b\x93"},
		{Tuple{int64(math.MaxInt64)}, "\x1c\x7f\xff\xff\xff\xff\xff\xff\xff"},
		{Tuple{int64(math.MinInt64)}, "\x0c\x7f\xff\xff\xff\xff\xff\xff\xff"},
		{Tuple{uint64(math.MaxUint64)}, "\x1c\xff\xff\xff\xff\xff\xff\xff\xff"},
		{Tuple{float32(-42)}, "\x20\x3d\xd7\xff\xff"},
		{Tuple{float64(-42)}, "\x21\x3f\xba\xff\xff\xff\xff\xff\xff"},
		{Tuple{false, true}, "\x26\x27"},
		{Tuple{Versionstamp{Transaction: kv.Versionstamp{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, User: 0x0a0b}}, "\x33\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b"},
	} {
		require.Equal(t, []byte(c.bytes), append([]byte{}, c.tuple.Pack()...), "%v", c.tuple)
		back, err := Unpack([]byte(c.bytes))
		require.NoError(t, err, "%v", c.tuple)
		require.Equal(t, c.tuple, back)
	}
}

func TestIntegerTypesShareOneEncoding(t *testing.T) {
	for _, e := range []Element{int(7), int32(7), int64(7), uint(7), uint32(7), uint64(7)} {
		require.Equal(t, []byte{0x15, 7}, Tuple{e}.Pack())
	}
}

func TestMalformed(t *testing.T) {
	for name, b := range map[string]string{
		"bytes without end":        "\x01abc",
		"escaped end only":         "\x02abc\x00\xff",
		"short integer":            "\x16\x01",
		"padded integer":           "\x16\x00\x01",
		"padded negative integer":  "\x12\xff\xfe",
		"integer below int64":      "\x0c\x00\x00\x00\x00\x00\x00\x00\x00",
		"big positive integer":     "\x1d\x09\x01\x00\x00\x00\x00\x00\x00\x00\x00",
		"big negative integer":     "\x0b\xf6\x01\x00\x00\x00\x00\x00\x00\x00\x00",
		"short float":              "\x20\x00",
		"short double":             "\x21\x00\x00\x00\x00",
		"short uuid":               "\x30\x00",
		"short versionstamp":       "\x33\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09",
		"80-bit versionstamp":      "\x32\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09",
		"nested without end":       "\x05\x14",
		"unknown code":             "\xfe",
		"nested deeper than bound": strings.Repeat("\x05", 1000),
	} {
		_, err := Unpack([]byte(b))
		require.ErrorIs(t, err, ErrMalformed, name)
		require.ErrorContains(t, err, "at byte", name)
	}
}

func TestPackWithVersionstamp(t *testing.T) {
	prefix := []byte("pre")
	packed, err := Tuple{"log", Tuple{IncompleteVersionstamp(3)}, 1}.PackWithVersionstamp(prefix)
	require.NoError(t, err)
	// pre 02 'log' 00 05 33 <10 bytes> 00 03 00 15 01, then the offset of the 10 bytes.
	require.Equal(t, "pre\x02log\x00\x05\x33"+strings.Repeat("\xff", 10)+"\x00\x03\x00\x15\x01"+"\x0a\x00\x00\x00", string(packed))

	_, err = Tuple{"log"}.PackWithVersionstamp(nil)
	require.ErrorIs(t, err, kv.ErrInvalid)
	_, err = Tuple{IncompleteVersionstamp(0), IncompleteVersionstamp(1)}.PackWithVersionstamp(nil)
	require.ErrorIs(t, err, kv.ErrInvalid)

	require.True(t, Tuple{Tuple{IncompleteVersionstamp(0)}}.HasIncompleteVersionstamp())
	require.False(t, Tuple{Tuple{Versionstamp{}}}.HasIncompleteVersionstamp())
}

func TestPackPanicsOnMistakes(t *testing.T) {
	require.Panics(t, func() { Tuple{struct{}{}}.Pack() })
	require.Panics(t, func() { Tuple{IncompleteVersionstamp(0)}.Pack() })
}

func TestStrinc(t *testing.T) {
	for in, want := range map[string]string{"a": "b", "a\xff": "b", "a\xff\xff": "b", "\x00": "\x01", "ab\xfe": "ab\xff"} {
		got, err := Strinc([]byte(in))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	for _, in := range []string{"", "\xff", "\xff\xff"} {
		_, err := Strinc([]byte(in))
		require.ErrorIs(t, err, kv.ErrInvalid)
	}
	begin, end, err := PrefixRange([]byte("a\xff"))
	require.NoError(t, err)
	require.Equal(t, []string{"a\xff", "b"}, []string{string(begin), string(end)})
}

func TestUnpackAfter(t *testing.T) {
	prefix := Tuple{"varve", "main"}.Pack()
	got, err := UnpackAfter(prefix, Tuple{"varve", "main", "node", 7}.Pack())
	require.NoError(t, err)
	require.Equal(t, Tuple{"node", int64(7)}, got)
	_, err = UnpackAfter(prefix, Tuple{"other"}.Pack())
	require.ErrorIs(t, err, ErrMalformed)
}

func TestString(t *testing.T) {
	require.Equal(t, `("a\"", b"\x00", 7, nil, (true), 1100aabb-ccdd-eeff-1100-aabbccddeeff, Versionstamp(?:2))`,
		Tuple{`a"`, []byte{0}, 7, nil, Tuple{true}, testUUID, IncompleteVersionstamp(2)}.String())
}

// drawElement draws an element in the form that decoding gives.
func drawElement(t *rapid.T, depth int) Element {
	data := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0xfe, 0xff}), 0, 5)
	kinds := 9
	if depth < 3 {
		kinds = 10
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return data.Draw(t, "bytes")
	case 2:
		return string(data.Draw(t, "string"))
	case 3:
		return rapid.Int64().Draw(t, "int64")
	case 4:
		return rapid.Uint64Range(math.MaxInt64+1, math.MaxUint64).Draw(t, "uint64")
	case 5:
		return rapid.Bool().Draw(t, "bool")
	case 6:
		return rapid.Float64().Draw(t, "float64")
	case 7:
		return UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
	case 8:
		return Versionstamp{Transaction: kv.Versionstamp(rapid.SliceOfN(rapid.ByteRange(0, 3), 10, 10).Draw(t, "stamp")), User: rapid.Uint16().Draw(t, "user")}
	}
	return drawTuple(t, depth+1)
}

func drawTuple(t *rapid.T, depth int) Tuple {
	out := Tuple{}
	for range rapid.IntRange(0, 4).Draw(t, "length") {
		out = append(out, drawElement(t, depth))
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawTuple(t, 0)
		out, err := Unpack(in.Pack())
		require.NoError(t, err)
		require.Equal(t, in, out)
	})
}

// rank is the order of the types, by their codes.
func rank(e Element) int {
	switch v := e.(type) {
	case nil:
		return 0
	case []byte:
		return 1
	case string:
		return 2
	case Tuple:
		return 3
	case int64, uint64:
		return 4
	case float64:
		return 5
	case bool:
		if v {
			return 7
		}
		return 6
	case UUID:
		return 8
	}
	return 9
}

func compareElements(a, b Element) int {
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	switch x := a.(type) {
	case []byte:
		return bytes.Compare(x, b.([]byte))
	case string:
		return strings.Compare(x, b.(string))
	case Tuple:
		return slices.CompareFunc(x, b.(Tuple), compareElements)
	case int64:
		if y, ok := b.(int64); ok {
			return compareOrdered(x, y)
		}
		return -1
	case uint64:
		if y, ok := b.(uint64); ok {
			return compareOrdered(x, y)
		}
		return 1
	case float64:
		y := b.(float64)
		if x == 0 && y == 0 {
			return compareOrdered(math.Copysign(1, x), math.Copysign(1, y))
		}
		return compareOrdered(x, y)
	case UUID:
		y := b.(UUID)
		return bytes.Compare(x[:], y[:])
	case Versionstamp:
		y := b.(Versionstamp)
		if d := bytes.Compare(x.Transaction[:], y.Transaction[:]); d != 0 {
			return d
		}
		return compareOrdered(x.User, y.User)
	}
	return 0
}

func compareOrdered[T int64 | uint64 | float64 | uint16](x, y T) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func sign(n int) int { return max(-1, min(1, n)) }

func TestOrderOfBytesIsOrderOfTuples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawTuple(t, 0), drawTuple(t, 0)
		if rapid.Bool().Draw(t, "share a prefix") {
			b = append(slices.Clone(a[:rapid.IntRange(0, len(a)).Draw(t, "shared")]), b...)
		}
		want := slices.CompareFunc(a, b, compareElements)
		require.Equal(t, sign(want), bytes.Compare(a.Pack(), b.Pack()), "%v and %v", a, b)
	})
}

func TestRangeHoldsExactlyTheExtensions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix, other := drawTuple(t, 0), drawTuple(t, 0)
		if rapid.Bool().Draw(t, "extend") {
			other = append(slices.Clone(prefix), other...)
		}
		begin, end := prefix.Range()
		key := other.Pack()
		inRange := bytes.Compare(begin, key) <= 0 && bytes.Compare(key, end) < 0
		extends := len(other) > len(prefix) && slices.CompareFunc(other[:len(prefix)], prefix, compareElements) == 0
		require.Equal(t, extends, inRange, "%v in the range of %v", other, prefix)
	})
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte{})
	f.Add(Tuple{"a", 1, -70000, nil, Tuple{nil, []byte{0}}, 1.5, testUUID, Versionstamp{User: 1}}.Pack())
	f.Fuzz(func(t *testing.T, b []byte) {
		unpacked, err := Unpack(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error of an unexpected kind: %v", err)
			}
			return
		}
		if unpacked.HasIncompleteVersionstamp() {
			return // only PackWithVersionstamp takes these back
		}
		if again := unpacked.Pack(); !bytes.Equal(again, b) {
			t.Fatalf("%x unpacks to %v, which packs to %x", b, unpacked, again)
		}
	})
}
