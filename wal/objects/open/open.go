// Package open opens the object store that a URL names. It is apart from package objects because it imports every kind of store.
package open

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/dir"
	"github.com/varvedb/varve/wal/objects/s3"
)

// Options of an opened store.
type Options struct {
	// Observer is told of every operation; nil for none.
	Observer objects.Observer
	// S3 are the options of a bucket.
	S3 s3.Options
}

// Store opens a bucket, s3://bucket[/prefix][?region=...&endpoint=...&pathStyle=...], or a directory, file:///absolute/path or
// file://path/below/the/working/directory. It opens the directory, making it if need be, and sends no request to a bucket:
// objects.CheckAccess does. Errors never repeat the URL, which may hold a secret that does not belong there.
func Store(ctx context.Context, rawURL string, options Options) (objects.Store, error) {
	store, err := openScheme(ctx, rawURL, options)
	if err != nil {
		return nil, err
	}
	if options.Observer != nil {
		store = objects.Observed(store, options.Observer)
	}
	return store, nil
}

// Check reports what is wrong with a URL without opening anything.
func Check(rawURL string) error {
	var err error
	switch scheme(rawURL) {
	case "s3":
		_, err = s3.ParseLocation(rawURL)
	case "file":
		_, err = directory(rawURL)
	default:
		err = errScheme
	}
	return err
}

var errScheme = errors.New("object store URL: want s3://bucket/prefix, file:///absolute/path or file://relative/path")

func openScheme(ctx context.Context, rawURL string, options Options) (objects.Store, error) {
	switch scheme(rawURL) {
	case "s3":
		location, err := s3.ParseLocation(rawURL)
		if err != nil {
			return nil, err
		}
		return s3.Open(ctx, location, options.S3)
	case "file":
		path, err := directory(rawURL)
		if err != nil {
			return nil, err
		}
		return dir.Open(path)
	}
	return nil, errScheme
}

func scheme(rawURL string) string {
	name, _, found := strings.Cut(rawURL, "://")
	if !found {
		return ""
	}
	return name
}

// directory is the path of a file URL. What would be a host in other URLs is the first part of a relative path.
func directory(rawURL string) (string, error) {
	rest := strings.TrimPrefix(rawURL, "file://")
	if strings.ContainsAny(rest, "?#") {
		return "", errors.New("object store URL: a directory takes no parameters (? and # in its name are written %3F and %23)")
	}
	path, err := url.PathUnescape(rest)
	switch {
	case err != nil:
		return "", errors.New("object store URL: the path has a % that is not followed by two hexadecimal digits")
	case path == "":
		return "", errors.New("object store URL: it names no directory (want file:///absolute/path or file://relative/path)")
	case strings.ContainsRune(path, 0):
		return "", errors.New("object store URL: the path has a zero byte")
	case filepath.Clean(path) == "/":
		return "", fmt.Errorf("object store URL: the directory is %s, the root of the file system", filepath.Clean(path))
	}
	return path, nil
}
