package s3

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // the protocol's checksum, not a secret's
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/wal/objects"
)

const (
	// maxDelete is what S3 takes in one request.
	maxDelete = 1000
	// singleDeletes are sent at once where the server does not take many in one request.
	singleDeletes = 16
)

// Delete implements objects.Store: many in one request where the server knows that.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := objects.ValidateKey(key); err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(keys, maxDelete) {
		if err := s.deleteBatch(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) deleteBatch(ctx context.Context, keys []string) error {
	if len(keys) == 1 || s.noMultiDelete.Load() {
		return s.deleteSingly(ctx, keys)
	}
	left := keys
	op := operation{name: objects.OpDelete, key: fmt.Sprintf("%s and %d more", keys[0], len(keys)-1)}
	err := s.do(ctx, op, s.options.MaxAttempts, func(a *attempt) error {
		var err error
		left, err = s.deleteObjects(a, left)
		return err
	})
	if err == nil || ctx.Err() != nil || retryable(err) || errors.Is(err, objects.ErrDenied) || errors.Is(err, objects.ErrNoBucket) {
		return err
	}
	// The server refused the request as such: it does not know it, or not our way of sending it.
	s.noMultiDelete.Store(true)
	return s.deleteSingly(ctx, left)
}

// deleteObjects deletes in one request, and gives the keys that are left.
func (s *Store) deleteObjects(a *attempt, keys []string) ([]string, error) {
	ids := make([]types.ObjectIdentifier, len(keys))
	for i, key := range keys {
		ids[i] = types.ObjectIdentifier{Key: s.key(key)}
	}
	out, err := s.client.DeleteObjects(a.ctx, &s3.DeleteObjectsInput{
		Bucket: s.bucket(), Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
	}, s3.WithAPIOptions(addContentMD5))
	if err != nil {
		return keys, err
	}
	var left []string
	var worst error
	for _, e := range out.Errors {
		key, code := strings.TrimPrefix(aws.ToString(e.Key), s.base()), aws.ToString(e.Code)
		if code == "NoSuchKey" {
			continue
		}
		left = append(left, key)
		failed := &failure{text: fmt.Sprintf("%q: %s: %s", key, code, oneLine(aws.ToString(e.Message)))}
		failed.cause = errors.New(failed.text)
		failed.kind, failed.retry = judge(200, code)
		if code == "AccessDenied" {
			failed.kind, failed.retry = objects.ErrDenied, false
		}
		if worst == nil || retryable(worst) {
			worst = failed
		}
	}
	return left, worst
}

func (s *Store) deleteSingly(ctx context.Context, keys []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(singleDeletes)
	for _, key := range keys {
		group.Go(func() error {
			err := s.do(ctx, operation{name: objects.OpDelete, key: key}, s.options.MaxAttempts, func(a *attempt) error {
				_, err := s.client.DeleteObject(a.ctx, &s3.DeleteObjectInput{Bucket: s.bucket(), Key: s.key(key)})
				return err
			})
			if errors.Is(err, objects.ErrNotFound) {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

// addContentMD5 adds the checksum that older servers want of a multi-object delete, beside the one that the SDK sends.
func addContentMD5(stack *middleware.Stack) error {
	return stack.Build.Add(middleware.BuildMiddlewareFunc("VarveContentMD5",
		func(ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler) (middleware.BuildOutput, middleware.Metadata, error) {
			if err := setContentMD5(in.Request); err != nil {
				return middleware.BuildOutput{}, middleware.Metadata{}, err
			}
			return next.HandleBuild(ctx, in)
		}), middleware.After)
}

func setContentMD5(request any) error {
	req, ok := request.(*smithyhttp.Request)
	if !ok {
		return fmt.Errorf("request of unknown type %T", request)
	}
	body, err := io.ReadAll(req.GetStream())
	if err != nil {
		return fmt.Errorf("read the request for its checksum: %w", err)
	}
	sum := md5.Sum(body) //nolint:gosec // as above
	req.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	again, err := req.SetStream(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("put the request back: %w", err)
	}
	*req = *again
	return nil
}
