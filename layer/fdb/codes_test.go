package fdb

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

// What FoundationDB's fdb_error_predicate says (7.3 and 7.4).
var (
	retryableNotCommitted = []int{1007, 1009, 1020, 1037, 1038, 1042, 1051, 1078, 1213, 1223, 1235, 1242}
	maybeCommitted        = []int{1021, 1039}
)

var kinds = []error{kv.ErrConflict, kv.ErrTooOld, kv.ErrCommitUnknown, kv.ErrUnavailable, kv.ErrTransactionTooLarge,
	kv.ErrKeyTooLarge, kv.ErrValueTooLarge, kv.ErrInvalid, kv.ErrLocked, kv.ErrClosed}

func TestCodes(t *testing.T) {
	backedOff := map[int]bool{}
	for _, number := range append(retryableNotCommitted, maybeCommitted...) {
		backedOff[number] = number != 1038 // an operator's lock is reported at once
	}
	names := map[string]int{}
	word := regexp.MustCompile(`^[a-z][a-z_]*[a-z]$`)
	for number := range 10_000 {
		row, listed := codes[number]
		require.Equal(t, backedOff[number], row.retry == afterBackoff, "%d %s: what the library would reset", number, row.name)
		if !listed {
			require.Equal(t, code{name: "unknown"}, codeOf(number))
			continue
		}
		require.Regexp(t, word, row.name)
		require.NotContains(t, names, row.name, "%d has the name of another code", number)
		names[row.name] = number
		if row.kind != nil {
			require.Contains(t, kinds, row.kind)
		}
		if row.retry != never {
			require.True(t, kv.Retryable(row.kind), "%d %s is retried, so its kind must be a retryable one", number, row.name)
		}

		err := codeError("op", number, nil)
		require.EqualValues(t, number, err.(*Error).Code)
		require.ErrorContains(t, err, fmt.Sprintf("%s (%d)", row.name, number))
		for _, kind := range kinds {
			require.Equal(t, kind == row.kind, errors.Is(err, kind), "%d %s is %v", number, row.name, kind)
		}
		what, handed := retryOf(fmt.Errorf("wrapped: %w", err))
		require.Equal(t, row.retry, what)
		require.Equal(t, number, handed)
	}
	require.Len(t, names, len(codes), "codes above 9999")
}

func TestKinds(t *testing.T) {
	for number, want := range map[int]error{
		1007: kv.ErrTooOld, 1009: kv.ErrTooOld, 1020: kv.ErrConflict, 1021: kv.ErrCommitUnknown, 1031: kv.ErrUnavailable,
		1037: kv.ErrUnavailable, 1038: kv.ErrLocked, 1213: kv.ErrUnavailable, 2000: kv.ErrInvalid, 2004: kv.ErrInvalid,
		2005: kv.ErrInvalid, 2017: kv.ErrInvalid, 2101: kv.ErrTransactionTooLarge, 2102: kv.ErrKeyTooLarge, 2103: kv.ErrValueTooLarge,
	} {
		require.ErrorIs(t, codeError("op", number, nil), want)
	}
}

func TestCommitErrors(t *testing.T) {
	for _, number := range []int{1025, 1031, 1101} {
		err := commitError(number, context.DeadlineExceeded)
		require.ErrorIs(t, err, kv.ErrCommitUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		what, _ := retryOf(err)
		require.Equal(t, never, what, "the commit could land after its retry")
	}
	for number, want := range map[int]error{1020: kv.ErrConflict, 1021: kv.ErrCommitUnknown, 1039: kv.ErrCommitUnknown, 1007: kv.ErrTooOld} {
		err := commitError(number, nil)
		require.ErrorIs(t, err, want)
		what, handed := retryOf(err)
		require.Equal(t, afterBackoff, what)
		require.Equal(t, number, handed)
	}
}

func TestCausesOfCancelledReads(t *testing.T) {
	mine := errors.New("mine")
	for _, test := range []struct {
		cause, is, isNot error
		retry            retry
	}{
		{context.Canceled, context.Canceled, kv.ErrUnavailable, never},
		{fmt.Errorf("%w: %w", context.Canceled, mine), mine, kv.ErrUnavailable, never},
		{context.DeadlineExceeded, kv.ErrUnavailable, kv.ErrClosed, never},
		{errAttemptTimeout, kv.ErrUnavailable, context.DeadlineExceeded, inNewTransaction},
		{kv.ErrClosed, kv.ErrClosed, kv.ErrUnavailable, never},
	} {
		err := codeError("get", codeTransactionCancelled, test.cause)
		require.ErrorIs(t, err, test.cause)
		require.ErrorIs(t, err, test.is)
		require.NotErrorIs(t, err, test.isNot)
		what, _ := retryOf(err)
		require.Equal(t, test.retry, what, "%v", test.cause)
	}
}

func TestEnded(t *testing.T) {
	mine := errors.New("mine")
	ctx, cancel := context.WithCancelCause(t.Context())
	require.NoError(t, ended(ctx))
	cancel(mine)
	require.ErrorIs(t, ended(ctx), context.Canceled)
	require.ErrorIs(t, ended(ctx), mine)

	closed, end := context.WithCancelCause(t.Context())
	end(kv.ErrClosed)
	require.Equal(t, kv.ErrClosed, ended(closed))
}

func TestGaveUp(t *testing.T) {
	conflict := codeError("commit", codeNotCommitted, nil)
	err := gaveUp(context.DeadlineExceeded, conflict)
	require.ErrorIs(t, err, kv.ErrConflict)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.EqualError(t, gaveUp(kv.ErrClosed, nil), "foundationdb: database closed")
	require.EqualError(t, gaveUp(context.DeadlineExceeded, nil), "foundationdb: database unavailable: context deadline exceeded")
	require.EqualError(t, gaveUp(context.Canceled, nil), "foundationdb: context canceled")
}
