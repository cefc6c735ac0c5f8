package s3

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/varvedb/varve/wal/objects"
)

// Put implements objects.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	return s.put(ctx, operation{name: objects.OpPut, key: key, size: int64(len(body))}, body, nil)
}

// PutIfAbsent implements objects.Store, by If-None-Match. An attempt that succeeded without our hearing of it makes the next one
// ErrExists, so that the caller reads the object back.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	return s.put(ctx, operation{name: objects.OpPutIfAbsent, key: key, size: int64(len(body))}, body, aws.String("*"))
}

func (s *Store) put(ctx context.Context, op operation, body []byte, ifNoneMatch *string) error {
	if err := objects.ValidateKey(op.key); err != nil {
		return err
	}
	checksum := crc32c(body)
	return s.do(ctx, op, s.options.MaxAttempts, func(a *attempt) error {
		input := &s3.PutObjectInput{
			Bucket: s.bucket(), Key: s.key(op.key), Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))), IfNoneMatch: ifNoneMatch,
		}
		// The signature covers a SHA-256 of the body. This one is stored with the object, and checked again when all of it is read.
		checked := !s.noChecksum.Load()
		if checked {
			input.ChecksumCRC32C = checksum
		}
		out, err := s.client.PutObject(a.ctx, input)
		if checked && refusesChecksum(err) {
			s.noChecksum.Store(true)
			return again("the server does not know checksums: %w", err)
		}
		if err == nil && aws.ToString(out.ETag) == "" {
			return errNoETag()
		}
		return err
	})
}

func crc32c(body []byte) *string {
	sum := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
	return aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum)))
}

// refusesChecksum: the server says that it does not know the checksum's header.
func refusesChecksum(err error) bool {
	status := statusOf(err)
	if err == nil || status != http.StatusBadRequest && status != http.StatusNotImplemented {
		return false
	}
	text := strings.ToLower(summarize(err).Error())
	return strings.Contains(text, "checksum") && !strings.Contains(text, "mismatch") && !strings.Contains(text, "did not match")
}

// CheckAccess says in one line what keeps us from the bucket: it is missing, it cannot be reached, or the credentials are no good.
func (s *Store) CheckAccess(ctx context.Context) error {
	const attempts = 3
	op := operation{name: objects.OpList, key: s.base()}
	return s.do(ctx, op, attempts, func(a *attempt) error {
		_, err := s.client.ListObjectsV2(a.ctx, &s3.ListObjectsV2Input{Bucket: s.bucket(), Prefix: aws.String(s.base()), MaxKeys: aws.Int32(1)})
		return err
	})
}
