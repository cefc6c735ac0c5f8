package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/varvedb/varve/wal/objects"
)

// Get implements objects.Store.
func (s *Store) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	op := operation{name: objects.OpGet, key: key}
	if err := objects.ValidateKey(key); err != nil {
		return nil, err
	}
	if length == 0 || offset < 0 || length < 0 || offset+length < 0 {
		return nil, s.getNothing(ctx, op, offset, length)
	}
	var body []byte
	err := s.do(ctx, op, s.options.MaxAttempts, func(a *attempt) error {
		out, err := s.request(a, key, fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
		if err != nil {
			return err
		}
		defer func() { _ = out.Body.Close() }() // only read
		got, err := rangeOf(out)
		if err != nil {
			return err
		}
		if got.total < offset+length {
			return kind(objects.ErrRange, "%d bytes from %d of %d", length, offset, got.total)
		}
		if got.first != offset || got.length != length {
			return again("asked for %d bytes from %d, the server gave %d from %d", length, offset, got.length, got.first)
		}
		body, err = readBody(a, out.Body, length)
		return err
	})
	if err != nil {
		return nil, err
	}
	return body, nil
}

// getNothing answers for an empty range, which HTTP cannot ask for, or an impossible one.
func (s *Store) getNothing(ctx context.Context, op operation, offset, length int64) error {
	info, err := s.head(ctx, op)
	if err != nil {
		return err
	}
	if offset < 0 || length != 0 || offset > info.Size {
		return s.fail(op, 1, kind(objects.ErrRange, "%d bytes from %d of %d", length, offset, info.Size))
	}
	return nil
}

// GetAll implements objects.Store. The checksum that Put sent is checked, where the server kept it.
func (s *Store) GetAll(ctx context.Context, key string, limit int64) ([]byte, error) {
	if err := objects.ValidateKey(key); err != nil {
		return nil, err
	}
	var body []byte
	err := s.do(ctx, operation{name: objects.OpGetAll, key: key}, s.options.MaxAttempts, func(a *attempt) error {
		out, err := s.request(a, key, "")
		if err != nil {
			return err
		}
		defer func() { _ = out.Body.Close() }() // only read
		if out.ContentLength == nil || *out.ContentLength < 0 {
			return again("the server does not tell the size of the object")
		}
		if aws.ToString(out.ETag) == "" {
			return errNoETag()
		}
		size := *out.ContentLength
		if size > limit {
			return kind(objects.ErrRange, "%d bytes, the limit is %d", size, limit)
		}
		body, err = readBody(a, out.Body, size)
		return err
	})
	if err != nil {
		return nil, err
	}
	return body, nil
}

// GetTail implements objects.Store.
func (s *Store) GetTail(ctx context.Context, key string, length int64) (tail []byte, size int64, err error) {
	op := operation{name: objects.OpGetTail, key: key}
	if err := objects.ValidateKey(key); err != nil {
		return nil, 0, err
	}
	if length <= 0 {
		return s.noTail(ctx, op, length)
	}
	err = s.do(ctx, op, s.options.MaxAttempts, func(a *attempt) error {
		tail, size, err = s.tail(a, key, length)
		return err
	})
	if errors.Is(err, objects.ErrRange) {
		return s.tailBySize(ctx, key, length)
	}
	if err != nil {
		return nil, 0, err
	}
	return tail, size, nil
}

func (s *Store) tail(a *attempt, key string, length int64) ([]byte, int64, error) {
	out, err := s.request(a, key, fmt.Sprintf("bytes=-%d", length))
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = out.Body.Close() }() // only read
	got, err := rangeOf(out)
	if err != nil {
		return nil, 0, err
	}
	if want := min(length, got.total); got.length != want || got.first != got.total-want {
		return nil, 0, again("asked for the last %d of %d bytes, the server gave %d from %d", want, got.total, got.length, got.first)
	}
	tail, err := readBody(a, out.Body, got.length)
	return tail, got.total, err
}

// tailBySize is for an empty object, of which there is no last byte to ask for, and for servers that refuse to give more than there is.
func (s *Store) tailBySize(ctx context.Context, key string, length int64) ([]byte, int64, error) {
	info, err := s.head(ctx, operation{name: objects.OpGetTail, key: key})
	if err != nil {
		return nil, 0, err
	}
	length = min(length, info.Size)
	tail, err := s.Get(ctx, key, info.Size-length, length)
	return tail, info.Size, err
}

// noTail tells the size only.
func (s *Store) noTail(ctx context.Context, op operation, length int64) ([]byte, int64, error) {
	info, err := s.head(ctx, op)
	if err != nil {
		return nil, 0, err
	}
	if length < 0 {
		return nil, 0, s.fail(op, 1, kind(objects.ErrRange, "a tail of %d bytes", length))
	}
	return nil, info.Size, nil
}

// Head implements objects.Store.
func (s *Store) Head(ctx context.Context, key string) (objects.Info, error) {
	if err := objects.ValidateKey(key); err != nil {
		return objects.Info{}, err
	}
	return s.head(ctx, operation{name: objects.OpHead, key: key})
}

func (s *Store) head(ctx context.Context, op operation) (objects.Info, error) {
	var info objects.Info
	err := s.do(ctx, op, s.options.MaxAttempts, func(a *attempt) error {
		out, err := s.client.HeadObject(a.ctx, &s3.HeadObjectInput{Bucket: s.bucket(), Key: s.key(op.key)})
		if errors.Is(summarize(err), errUnsaid) {
			return s.whatIsAbsent(a, op.key)
		}
		if err != nil {
			return err
		}
		if out.ContentLength == nil || *out.ContentLength < 0 {
			return again("the server does not tell the size of the object")
		}
		info = objects.Info{Key: op.key, Size: *out.ContentLength, Modified: aws.ToTime(out.LastModified)}
		return nil
	})
	return info, err
}

// errNoETag is for an answer of 200 that no S3 server gives: it is that of something in between.
func errNoETag() error { return again("the answer has no ETag: it is not that of an S3 server") }

// whatIsAbsent asks again in a way whose answer has a body, which tells an absent object from an absent bucket, or from a 404 of another server.
func (s *Store) whatIsAbsent(a *attempt, key string) error {
	out, err := s.request(a, key, "bytes=0-0")
	if err == nil {
		_ = out.Body.Close() // not read
	}
	if err == nil || errors.Is(summarize(err), objects.ErrRange) {
		return again("the object was absent and is there")
	}
	return err
}

// request asks for a range of an object, or with "" for all of it.
func (s *Store) request(a *attempt, key, byteRange string) (*s3.GetObjectOutput, error) {
	input := &s3.GetObjectInput{Bucket: s.bucket(), Key: s.key(key)}
	if byteRange != "" {
		input.Range = aws.String(byteRange)
	} else {
		// Not with a range: some servers then send the checksum of the whole object, which the SDK takes for the range's.
		input.ChecksumMode = types.ChecksumModeEnabled
	}
	return s.client.GetObject(a.ctx, input)
}

// span is the part of an object that an answer carries, in bytes.
type span struct{ first, length, total int64 }

// rangeOf reads what the answer to a range request carries.
func rangeOf(out *s3.GetObjectOutput) (span, error) {
	if out.ContentLength == nil || *out.ContentLength < 0 {
		return span{}, again("the server does not tell the size of the body")
	}
	size := *out.ContentLength
	if out.ContentRange == nil && size == 0 && aws.ToString(out.ETag) != "" {
		return span{}, nil // an empty object has no range to give
	}
	if out.ContentRange == nil {
		return span{}, again("asked for a range, the server gave %d bytes without saying which", size)
	}
	got, err := parseContentRange(*out.ContentRange)
	if err != nil {
		return span{}, again("%w", err)
	}
	if got.length != size {
		return span{}, again("Content-Range %q with a body of %d bytes", *out.ContentRange, size)
	}
	return got, nil
}

// parseContentRange reads "bytes first-last/total" (RFC 9110, 14.4).
func parseContentRange(text string) (span, error) {
	bad := fmt.Errorf("unreadable Content-Range %.100q", text)
	bounds, total, ok := strings.Cut(strings.TrimPrefix(text, "bytes "), "/")
	first, last, ok2 := strings.Cut(bounds, "-")
	if !ok || !ok2 || !strings.HasPrefix(text, "bytes ") {
		return span{}, bad
	}
	var numbers [3]int64
	for i, s := range []string{first, last, total} {
		n, err := strconv.ParseUint(s, 10, 62)
		if err != nil {
			return span{}, bad
		}
		numbers[i] = int64(n)
	}
	got := span{first: numbers[0], length: numbers[1] - numbers[0] + 1, total: numbers[2]}
	if got.length <= 0 || got.first+got.length > got.total {
		return span{}, bad
	}
	return got, nil
}

// readBody reads a body of exactly the size, to its end, where the SDK compares the checksum.
func readBody(a *attempt, from io.Reader, size int64) ([]byte, error) {
	a.expect(size)
	body := make([]byte, size)
	if n, err := io.ReadFull(from, body); err != nil {
		return nil, again("the body ended after %d of %d bytes: %w", n, size, err)
	}
	extra, err := io.Copy(io.Discard, io.LimitReader(from, 1))
	if err != nil {
		return nil, again("the body: %w", err)
	}
	if extra > 0 {
		return nil, again("the body is longer than the %d bytes that were announced", size)
	}
	return body, nil
}
