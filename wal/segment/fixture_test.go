package segment

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the fixtures anew")

// describe lists an object byte by byte, with what each run of bytes is.
func describe(b []byte) string {
	var out strings.Builder
	line := func(from, to int64, what string, args ...any) {
		fmt.Fprintf(&out, "# %d: %s\n", from, fmt.Sprintf(what, args...))
		for ; from < to; from += 32 {
			fmt.Fprintln(&out, hex.EncodeToString(b[from:min(from+32, to)]))
		}
	}
	o, _, err := Decode(b)
	if err != nil {
		return err.Error()
	}
	line(0, int64(len(head)), "head: magic number and version")
	var indexes []Index
	for i, p := range o.Parts {
		x, _ := o.Index(i)
		indexes = append(indexes, x)
		for _, block := range x.Blocks {
			line(block.Pos, block.Pos+block.Len, "block of stream %d, offsets %d to %d, batches %d, CRC32C %08x", p.Stream, block.Base, block.End-1, block.Batches, block.CRC)
		}
	}
	for i, p := range o.Parts {
		line(p.IndexPos, p.IndexPos+p.IndexLen-crcLen, "index of stream %d from offset %d, blocks %d, batches listed %d", p.Stream, p.Base, len(indexes[i].Blocks), len(indexes[i].Batches))
		line(p.IndexPos+p.IndexLen-crcLen, p.IndexPos+p.IndexLen, "its CRC32C")
	}
	directory := o.TailPos
	if n := len(o.Parts); n > 0 {
		directory = o.Parts[n-1].IndexPos + o.Parts[n-1].IndexLen
	}
	line(directory, o.Size-footerLen, "directory: %s, parts %d", o.Header, len(o.Parts))
	for i, name := range []string{"footer: length of the tail", "length of the directory"} {
		line(o.Size-footerLen+int64(4*i), o.Size-footerLen+int64(4*i)+4, "%s", name)
	}
	line(o.Size-28, o.Size-20, "size of the object")
	line(o.Size-20, o.Size-16, "CRC32C of the directory")
	line(o.Size-16, o.Size-12, "version and zero")
	line(o.Size-12, o.Size-8, "CRC32C of the footer's first 24 bytes")
	line(o.Size-8, o.Size, "magic number")
	return out.String()
}

// parseFixture drops the comments.
func parseFixture(t *testing.T, text string) []byte {
	var digits strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			digits.WriteString(strings.TrimSpace(line))
		}
	}
	b, err := hex.DecodeString(digits.String())
	require.NoError(t, err)
	return b
}

// TestFixtures pins the format: what was written once must be read for ever, and written so again.
func TestFixtures(t *testing.T) {
	for name, b := range samples() {
		path := filepath.Join("testdata", name+".hex")
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(describe(b)), 0o644))
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(text), describe(b), name)
		stored := parseFixture(t, string(text))
		require.Equal(t, b, stored, name)
		o, entries, err := Decode(stored)
		require.NoError(t, err)
		require.Equal(t, name, o.Kind.String())
		if o.Kind == KindSegment {
			require.Equal(t, grouped(sampleEntries()), entries)
		}
	}
}
