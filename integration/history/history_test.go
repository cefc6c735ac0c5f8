package history

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// sound is a history in which nothing is wrong.
func sound() (*Stream, []Read) {
	s := New("s")
	final := []Read{{0, "a/0"}, {1, "b/0"}, {2, "a/1"}, {3, "a/2"}}
	s.Acknowledged(Ack{"a", 0, 0})
	s.Acknowledged(Ack{"a", 1, 2})
	s.Got("r", Read{0, "a/0"})
	s.Got("r", Read{1, "b/0"})
	return s, final
}

func TestSoundHistory(t *testing.T) {
	s, final := sound()
	require.Empty(t, s.Check(final))
}

func TestAppendsThatWereGivenUpMayBeThereOrNot(t *testing.T) {
	s, final := sound()
	s.GaveUp("a", 3)
	s.GaveUp("a", 4)
	require.Empty(t, s.Check(final))
	require.Empty(t, s.Check(append(final, Read{4, "a/3"})))
	require.Empty(t, s.Check(append(final, Read{4, "a/5"})))
	require.NotEmpty(t, s.Check(append(final, Read{4, "a/6"})))
}

func TestCheckerFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(s *Stream, final []Read) []Read
		want  string
	}{
		"lost":               {func(s *Stream, f []Read) []Read { return f[:2] }, "the stream ends at 2"},
		"moved":              {func(s *Stream, f []Read) []Read { s.Acknowledged(Ack{"a", 2, 1}); return f }, `where there is "b/0"`},
		"twice":              {func(s *Stream, f []Read) []Read { return append(f, Read{4, "a/2"}) }, "is at offsets 3 and 4"},
		"gap of a writer":    {func(s *Stream, f []Read) []Read { return append(f, Read{4, "a/4"}) }, "expected 3"},
		"order":              {func(s *Stream, f []Read) []Read { return append(f, Read{4, "c/1"}, Read{5, "c/0"}) }, "expected 0"},
		"gap of offsets":     {func(s *Stream, f []Read) []Read { return append(f, Read{5, "a/3"}) }, "record 4 has offset 5"},
		"reader saw a gap":   {func(s *Stream, f []Read) []Read { s.Got("r", Read{3, "a/2"}); return f }, "as its record 2"},
		"reader saw a ghost": {func(s *Stream, f []Read) []Read { s.Got("r", Read{2, "z/0"}); return f }, `where there is "a/1"`},
		"read vanished": {func(s *Stream, f []Read) []Read {
			s.Got("r", Read{2, "a/1"})
			s.Got("r", Read{3, "a/2"})
			s.Got("r", Read{4, "a/3"})
			return f
		}, "has vanished"},
	} {
		t.Run(name, func(t *testing.T) {
			s, final := sound()
			problems := s.Check(c.spoil(s, final))
			require.NotEmpty(t, problems)
			require.Contains(t, problems[0], c.want)
		})
	}
}
