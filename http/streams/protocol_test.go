package streams

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/nodes/engine"
)

func TestOffsetTokensSortAsOffsetsDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64Min(0).Draw(t, "a"), rapid.Int64Min(0).Draw(t, "b")
		require.Equal(t, a < b, formatOffset(a) < formatOffset(b))
		at, err := parseOffset(formatOffset(a))
		require.NoError(t, err)
		require.Equal(t, position{offset: a}, at)
	})
}

func TestMalformedOffsetsAreRefused(t *testing.T) {
	for _, token := range []string{"", " ", "-2", "+1", "1,2", "0x10", "1e3", "NOW", "99999999999999999999", "1/2", "١"} {
		_, err := parseOffset(token)
		var f *failure
		require.ErrorAs(t, err, &f, token)
		require.Equal(t, http.StatusBadRequest, f.status, token)
	}
}

func FuzzParseOffset(f *testing.F) {
	f.Add("-1")
	f.Add("00000000000000000042")
	f.Fuzz(func(t *testing.T, token string) {
		at, err := parseOffset(token)
		if err == nil && at.offset < 0 {
			t.Fatalf("%q is offset %d", token, at.offset)
		}
	})
}

func TestCursorsGoForward(t *testing.T) {
	now := cursorEpoch.Add(1000 * cursorInterval)
	require.Equal(t, "1000", nextCursor("", now))
	require.Equal(t, "1000", nextCursor("999", now))
	require.Equal(t, "1000", nextCursor("nonsense", now))
	for range 100 {
		require.Greater(t, len(nextCursor("1000", now)), 0)
		require.NotEqual(t, "1000", nextCursor("1000", now))
		require.NotEqual(t, "2000", nextCursor("2000", now))
	}
}

func TestJSONArraysAreFlattenedByOneLevel(t *testing.T) {
	for body, want := range map[string][]string{
		`{"a":1}`:             {`{"a":1}`},
		` [{"a":1}, {"b":2}]`: {`{"a":1}`, `{"b":2}`},
		`[[1,2],[3]]`:         {`[1,2]`, `[3]`},
		`[[[1]]]`:             {`[[1]]`},
		`[]`:                  {},
		`"text"`:              {`"text"`},
		`null`:                {`null`},
	} {
		got, err := messages([]byte(body), true)
		require.NoError(t, err, body)
		texts := []string{}
		for _, m := range got {
			texts = append(texts, string(m))
		}
		require.Equal(t, want, texts, body)
	}
	for _, body := range []string{"", "{", "[1,", `{"a":1}{"b":2}`, "\xff"} {
		_, err := messages([]byte(body), true)
		require.Error(t, err, body)
	}
}

func TestChunkOfJSONIsAnArrayWhateverKafkaProducersWrote(t *testing.T) {
	k := chunk{values: [][]byte{[]byte(`{"a":1}`), nil, []byte("not json"), []byte(`2`)}}
	require.JSONEq(t, `[{"a":1},null,"not json",2]`, string(k.body(true)))
	require.Equal(t, `{"a":1}not json2`, string(k.body(false)))
	require.Equal(t, `[]`, string((&chunk{}).body(true)))
}

func TestLinesOfEventsComeBackAsTheyWere(t *testing.T) {
	for _, text := range []string{"a", "a\nb", " a\n  b", "a\n\nb", "\n", "a\n", ""} {
		w := &sseWriter{text: true, server: &Server{metrics: NewMetrics(nil)}}
		w.data(chunk{values: [][]byte{[]byte(text)}})
		require.Equal(t, text, parseEvent(w.buffer.String()), "%q", text)
	}
	// The other line ends become \n, which is all that an event can carry.
	w := &sseWriter{text: true, server: &Server{metrics: NewMetrics(nil)}}
	w.data(chunk{values: [][]byte{[]byte("a\r\nb\rc")}})
	require.Equal(t, "a\nb\nc", parseEvent(w.buffer.String()))
}

// parseEvent reads the data of one event as a browser does.
func parseEvent(event string) string {
	var data []string
	for line := range strings.SplitSeq(event, "\n") {
		if value, ok := strings.CutPrefix(line, "data:"); ok {
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	return strings.Join(data, "\n")
}

func TestProducerHeadersComeTogetherAndInForm(t *testing.T) {
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Add(pairs[i], pairs[i+1])
		}
		return h
	}
	p, err := producerOf(header(headerProducerID, "p", headerProducerEpoch, "3", headerProducerSeq, "9007199254740991"))
	require.NoError(t, err)
	require.LessOrEqual(t, p.ID, int64(-2))
	require.EqualValues(t, 3, p.Epoch)
	require.EqualValues(t, maxSafeInteger, p.Seq)
	none, err := producerOf(http.Header{})
	require.NoError(t, err)
	require.Nil(t, none)
	for _, h := range []http.Header{
		header(headerProducerID, "p"),
		header(headerProducerID, "p", headerProducerEpoch, "0"),
		header(headerProducerID, "", headerProducerEpoch, "0", headerProducerSeq, "0"),
		header(headerProducerID, "p", headerProducerEpoch, "-1", headerProducerSeq, "0"),
		header(headerProducerID, "p", headerProducerEpoch, "0", headerProducerSeq, "01"),
		header(headerProducerID, "p", headerProducerEpoch, "0", headerProducerSeq, "9007199254740992"),
		header(headerProducerID, "p", headerProducerEpoch, "0", headerProducerSeq, "1.0"),
		header(headerProducerID, "p", headerProducerID, "q", headerProducerEpoch, "0", headerProducerSeq, "0"),
		header(headerProducerID, strings.Repeat("p", maxHeader+1), headerProducerEpoch, "0", headerProducerSeq, "0"),
	} {
		_, err := producerOf(h)
		require.Error(t, err, "%v", h)
	}
}

func TestPathsHaveOneSpelling(t *testing.T) {
	for path, want := range map[string]string{"a/b": "a/b", "%61%2Fb": "a%2Fb", "a%2fb": "a%2Fb", "%7Ea": "~a", "a%20b": "a%20b", "%zz": "%zz", "%": "%", "a%4": "a%4"} {
		require.Equal(t, want, normalise(path), path)
	}
	for _, path := range []string{"", "__ds/subscriptions/x", "a//b", "../a", "a/./b"} {
		_, err := streamName(httptest.NewRequest(http.MethodGet, Prefix+path, nil))
		require.Error(t, err, path)
	}
}

func TestEveryRefusalHasItsAnswer(t *testing.T) {
	leader := layer.NodeRow{ID: 2, HTTP: "other:4437"}
	for _, c := range []struct {
		err    error
		status int
		header string
	}{
		{nodes.ErrUnknownTable, http.StatusNotFound, ""},
		{nodes.ErrUnknownBucket, http.StatusNotFound, ""},
		{nodes.ErrUnavailable, http.StatusServiceUnavailable, "Retry-After"},
		{engine.ErrBacklogFull, http.StatusServiceUnavailable, "Retry-After"},
		{engine.ErrTimeout, http.StatusServiceUnavailable, "Retry-After"},
		{engine.ErrNotOpen, http.StatusServiceUnavailable, "Retry-After"},
		{engine.ErrFenced, http.StatusServiceUnavailable, "Retry-After"},
		{&nodes.NotLeader{Leader: leader}, http.StatusTemporaryRedirect, ""},
		{&nodes.NotLeader{}, http.StatusServiceUnavailable, "Retry-After"},
		{&engine.EndedError{End: 7}, http.StatusConflict, headerClosed},
		{&engine.OffsetOutOfRange{Offset: 1, Start: 5, End: 9}, http.StatusGone, headerNextOffset},
		{&engine.OffsetOutOfRange{Offset: 11, Start: 5, End: 9}, http.StatusBadRequest, headerNextOffset},
		{&engine.ProducerError{Kind: engine.ErrInvalidProducerEpoch, Epoch: 4}, http.StatusForbidden, headerProducerEpoch},
		{&engine.ProducerError{Kind: engine.ErrOutOfOrderSequence, Epoch: 4, GotEpoch: 4, GotSeq: 9, Expected: 2}, http.StatusConflict, headerExpectedSeq},
		{&engine.ProducerError{Kind: engine.ErrOutOfOrderSequence, Epoch: 4, GotEpoch: 5, GotSeq: 9}, http.StatusBadRequest, ""},
		{&engine.WriterSeqError{}, http.StatusConflict, ""},
		{&http.MaxBytesError{Limit: 1}, http.StatusRequestEntityTooLarge, ""},
		{&engine.MissingObjectError{Object: "x"}, http.StatusInternalServerError, ""},
		{errors.New("anything else"), http.StatusInternalServerError, ""},
	} {
		f := failureOf(fmt.Errorf("while doing something: %w", c.err))
		require.Equal(t, c.status, f.status, "%v", c.err)
		if c.header != "" {
			require.Contains(t, f.headers, c.header, "%v", c.err)
		}
	}
}

func TestTTLCountsFromTheLastUse(t *testing.T) {
	x := newExpirations(nil, nil)
	x.began = time.Now().Add(-time.Hour)
	table := layer.TableRow{ID: 1, CreatedAt: time.Now().Add(-time.Minute), Options: map[string]string{nodes.OptionHTTPTTLSeconds: "30"}}
	at, ok := x.deadline(table)
	require.True(t, ok)
	require.True(t, at.Before(time.Now()), "nobody used it since it was created")
	x.touch(table)
	at, _ = x.deadline(table)
	require.True(t, at.After(time.Now().Add(25*time.Second)))
	// After a restart nothing is known of its use: it is as if it had just been used.
	x = newExpirations(nil, nil)
	at, _ = x.deadline(table)
	require.True(t, at.After(time.Now().Add(25*time.Second)))
	_, ok = x.deadline(layer.TableRow{ID: 2})
	require.False(t, ok)
}
