package s3

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/varvedb/varve/wal/objects"
)

// maxPage is what a server gives in one answer.
const maxPage = 1000

// List implements objects.Store. A server that lists out of byte order is an error: what is skipped would be taken for absent.
func (s *Store) List(ctx context.Context, prefix, startAfter string, limit int) ([]objects.Info, error) {
	if err := objects.ValidatePrefix(prefix); err != nil {
		return nil, err
	}
	op := operation{name: objects.OpList, key: prefix}
	if err := ctx.Err(); err != nil {
		return nil, s.fail(op, 1, err)
	}
	if startAfter > prefix && !strings.HasPrefix(startAfter, prefix) {
		return nil, nil // it is after every key of the prefix
	}
	l := lister{store: s, op: op, prefix: prefix, after: startAfter, limit: limit}
	for len(l.found) < limit && !l.done {
		if err := l.next(ctx); err != nil {
			return nil, err
		}
	}
	return l.found, nil
}

type lister struct {
	store  *Store
	op     operation
	prefix string
	after  string // the last key seen, in the caller's terms
	limit  int

	token *string
	found []objects.Info
	done  bool
}

// next adds a page.
func (l *lister) next(ctx context.Context) error {
	s := l.store
	input := &s3.ListObjectsV2Input{
		Bucket: s.bucket(), Prefix: s.key(l.prefix), MaxKeys: aws.Int32(int32(min(maxPage, l.limit-len(l.found)))), ContinuationToken: l.token,
	}
	if l.token == nil && l.after != "" && l.after >= l.prefix {
		input.StartAfter = s.key(l.after)
	}
	var page *s3.ListObjectsV2Output
	err := s.do(ctx, l.op, s.options.MaxAttempts, func(a *attempt) error {
		var err error
		page, err = s.client.ListObjectsV2(a.ctx, input)
		return err
	})
	if err != nil {
		return err
	}
	if err := l.add(page); err != nil {
		return s.fail(l.op, 1, err)
	}
	l.token = page.NextContinuationToken
	l.done = !aws.ToBool(page.IsTruncated)
	if !l.done && aws.ToString(l.token) == "" {
		return s.fail(l.op, 1, again("the server says that there are more keys, and not how to go on"))
	}
	return nil
}

func (l *lister) add(page *s3.ListObjectsV2Output) error {
	base := l.store.base()
	for _, o := range page.Contents {
		key, ours := strings.CutPrefix(aws.ToString(o.Key), base)
		if !ours || !strings.HasPrefix(key, l.prefix) {
			return again("the server listed %q for the prefix %q", aws.ToString(o.Key), base+l.prefix)
		}
		if key <= l.after {
			return again("the server listed %q after %q: it does not list in byte order of keys", key, l.after)
		}
		l.after = key
		if objects.ValidateKey(key) == nil && len(l.found) < l.limit {
			l.found = append(l.found, objects.Info{Key: key, Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified)})
		}
	}
	return nil
}
