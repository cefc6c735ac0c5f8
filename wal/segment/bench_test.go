package segment

import (
	"fmt"
	"hash/crc32"
	"testing"
)

func benchEntries(total, size, streams int) []Entry {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 7)
	}
	entries := make([]Entry, total/size)
	for i := range entries {
		at := int64(i / streams)
		entries[i] = Entry{Stream: int64(i % streams), Epoch: 1, Base: at * 10, Last: at*10 + 9, MaxTimestamp: int64(i), Producer: Producer{ID: int64(i % streams), Epoch: 1, FirstSeq: at * 10, LastSeq: at*10 + 9}, Data: data}
	}
	return entries
}

func BenchmarkEncode(b *testing.B) {
	for _, c := range []struct{ total, size, streams int }{{64 << 20, 16 << 10, 100}, {8 << 20, 16 << 10, 100}, {8 << 20, 1 << 10, 1000}, {1 << 20, 100, 50}, {4 << 10, 1 << 10, 2}} {
		b.Run(fmt.Sprintf("%dKiB/batch=%d/streams=%d", c.total>>10, c.size, c.streams), func(b *testing.B) {
			entries := benchEntries(c.total, c.size, c.streams)
			b.SetBytes(int64(c.total))
			b.ReportAllocs()
			for b.Loop() {
				Encode(testHeader, entries, Options{})
			}
		})
	}
}

// BenchmarkCopy is what Encode cannot do without.
func BenchmarkCopy(b *testing.B) {
	entries := benchEntries(64<<20, 16<<10, 100)
	b.SetBytes(64 << 20)
	for b.Loop() {
		buf := make([]byte, 64<<20)
		at := 0
		for i := range entries {
			at += copy(buf[at:], entries[i].Data)
		}
	}
}

func BenchmarkChecksum(b *testing.B) {
	buf := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	for b.Loop() {
		crc32.Checksum(buf, castagnoli)
	}
}

func BenchmarkDecode(b *testing.B) {
	body, _ := Encode(testHeader, benchEntries(8<<20, 16<<10, 100), Options{})
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Decode(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseTail(b *testing.B) {
	body, _ := Encode(testHeader, benchEntries(8<<20, 16<<10, 100), Options{})
	b.ReportAllocs()
	for b.Loop() {
		o, _, err := ParseTail(body, int64(len(body)))
		if err != nil {
			b.Fatal(err)
		}
		for i := range o.Parts {
			if _, err := o.Index(i); err != nil {
				b.Fatal(err)
			}
		}
	}
}
