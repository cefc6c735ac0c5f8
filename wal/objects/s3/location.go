package s3

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/varvedb/varve/wal/objects"
)

// Location is a bucket, and where in it and how it is reached. Its URL is
//
//	s3://bucket[/prefix][?region=...&endpoint=http(s)://host[:port]&pathStyle=true|false]
type Location struct {
	Bucket string
	// Prefix is the folder that all keys lie in, "" for the whole bucket.
	Prefix string
	// Region is that of the bucket; "" for AWS_REGION or the profile's, and us-east-1 for an endpoint without one.
	Region string
	// Endpoint is the server; "" for AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or else AWS.
	Endpoint string
	// PathStyle puts the bucket into the path (true) or into the host name (false); nil: true for an endpoint, false for AWS.
	PathStyle *bool
}

// bucketName is looser than Amazon's rule, as other servers are; it keeps out what would change the meaning of a URL.
var bucketName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]$`)

var errCredentials = errors.New("credentials do not belong in the URL: use AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, " +
	"a profile (AWS_PROFILE) or a role")

// ParseLocation reads the URL of a bucket. Errors do not repeat the URL, which may hold what should not have been put there.
func ParseLocation(raw string) (Location, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return Location{}, errors.New("object store URL: it cannot be read as a URL (want s3://bucket/prefix?region=...)")
	}
	loc, err := locate(u)
	if err != nil {
		return Location{}, fmt.Errorf("object store URL: %w", err)
	}
	return loc, nil
}

func locate(u *url.URL) (Location, error) {
	switch {
	case u.User != nil || strings.Contains(u.Host, "@"):
		return Location{}, errCredentials
	case u.Scheme != "s3":
		return Location{}, fmt.Errorf("scheme %q, want s3", u.Scheme)
	case u.Opaque != "":
		return Location{}, errors.New("want s3://bucket, with two slashes")
	case u.Fragment != "":
		return Location{}, errors.New("it has a fragment (#...)")
	case u.Host == "":
		return Location{}, errors.New("it names no bucket (want s3://bucket/prefix)")
	case u.Port() != "" || strings.HasSuffix(u.Host, ":"):
		return Location{}, errors.New("a bucket has no port; name the server by ?endpoint=http://host:port")
	case !bucketName.MatchString(u.Host):
		return Location{}, fmt.Errorf("bucket %q: want 3 to 63 letters, digits, dots, dashes or underscores", u.Host)
	}
	loc := Location{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	if loc.Prefix != "" {
		if err := objects.ValidateKey(loc.Prefix); err != nil {
			return Location{}, fmt.Errorf("prefix: %w", err)
		}
	}
	return loc, loc.parameters(u.RawQuery)
}

func (l *Location) parameters(raw string) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return errors.New("its parameters cannot be read (want ?region=...&endpoint=...&pathStyle=...)")
	}
	for name, values := range query {
		if len(values) != 1 || values[0] == "" {
			return fmt.Errorf("parameter %q: want one value, not empty", name)
		}
		switch value := values[0]; name {
		case "region":
			err = l.setRegion(value)
		case "endpoint":
			err = l.setEndpoint(value)
		case "pathStyle":
			err = l.setPathStyle(value)
		default:
			return fmt.Errorf("unknown parameter %q (known: region, endpoint, pathStyle)", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var regionName = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

func (l *Location) setRegion(value string) error {
	if !regionName.MatchString(value) {
		return errors.New("parameter region: want letters, digits and dashes, such as eu-central-1")
	}
	l.Region = value
	return nil
}

func (l *Location) setEndpoint(value string) error {
	u, err := url.Parse(value)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("parameter endpoint: want http://host:port or https://host")
	case u.User != nil:
		return fmt.Errorf("parameter endpoint: %w", errCredentials)
	case u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return errors.New("parameter endpoint: want scheme, host and port only")
	}
	l.Endpoint = u.Scheme + "://" + u.Host
	return nil
}

func (l *Location) setPathStyle(value string) error {
	if value != "true" && value != "false" {
		return errors.New("parameter pathStyle: want true or false")
	}
	pathStyle := value == "true"
	l.PathStyle = &pathStyle
	return nil
}

// String is the URL; ParseLocation reads it back.
func (l Location) String() string {
	u := url.URL{Scheme: "s3", Host: l.Bucket}
	if l.Prefix != "" {
		u.Path = "/" + l.Prefix
	}
	query := url.Values{}
	if l.Region != "" {
		query.Set("region", l.Region)
	}
	if l.Endpoint != "" {
		query.Set("endpoint", l.Endpoint)
	}
	if l.PathStyle != nil {
		query.Set("pathStyle", strconv.FormatBool(*l.PathStyle))
	}
	u.RawQuery = query.Encode()
	return u.String()
}
