package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

func newStream() *cobra.Command {
	e := &endpoints{}
	c := &cobra.Command{
		Use:               "stream",
		Short:             "Create, append to, read, list, delete and move streams",
		PersistentPreRunE: func(*cobra.Command, []string) error { e.resolve(); return nil },
	}
	e.bind(c, httpListener, adminListener)
	c.AddCommand(streamCreate(e), streamAppend(e), streamRead(e), streamTail(e), streamHead(e), streamList(e), streamDelete(e), streamClose(e),
		streamTransfer(e), streamTransfers(e), streamCancelTransfer(e))
	return c
}

func streamCreate(e *endpoints) *cobra.Command {
	var contentType, ttl, expires string
	c := &cobra.Command{
		Use: "create NAME", Short: "Create a stream", Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			h := http.Header{"Content-Type": {contentType}}
			if ttl != "" {
				h.Set("Stream-TTL", ttl)
			}
			if expires != "" {
				h.Set("Stream-Expires-At", expires)
			}
			answer, err := call(c.Context(), http.MethodPut, e.streamURL(given[0]), h, nil)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			said := "created"
			if answer.StatusCode == http.StatusOK {
				said = "exists"
			}
			fmt.Fprintf(c.OutOrStdout(), "%s %s, next offset %s\n", said, given[0], answer.Header.Get("Stream-Next-Offset"))
			return nil
		},
	}
	c.Flags().StringVar(&contentType, "content-type", "application/octet-stream", "content type; application/json keeps messages apart")
	c.Flags().StringVar(&ttl, "ttl", "", "seconds without a read or write after which the stream is deleted")
	c.Flags().StringVar(&expires, "expires-at", "", "RFC 3339 time at which the stream is deleted")
	return c
}

func streamAppend(e *endpoints) *cobra.Command {
	var contentType string
	c := &cobra.Command{
		Use: "append NAME [DATA]", Short: "Append data, or standard input, as one append", Args: args(cobra.RangeArgs(1, 2)),
		RunE: func(c *cobra.Command, given []string) error {
			data, err := dataOf(c, given[1:])
			if err != nil {
				return err
			}
			if contentType == "" {
				answer, err := call(c.Context(), http.MethodHead, e.streamURL(given[0]), nil, nil)
				if err != nil {
					return err
				}
				answer.Body.Close()
				contentType = answer.Header.Get("Content-Type")
			}
			answer, err := call(c.Context(), http.MethodPost, e.streamURL(given[0]), http.Header{"Content-Type": {contentType}}, bytes.NewReader(data))
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			fmt.Fprintf(c.OutOrStdout(), "next offset %s\n", answer.Header.Get("Stream-Next-Offset"))
			return nil
		},
	}
	c.Flags().StringVar(&contentType, "content-type", "", "content type of the data; empty for the stream's")
	return c
}

// maxAppend bounds what is read of standard input for one append, bytes. Nodes take less.
const maxAppend = 1 << 30

// dataOf is the argument, or all of standard input. It is read whole, since a node that does not lead the stream redirects the request, which is then sent again.
func dataOf(c *cobra.Command, given []string) ([]byte, error) {
	if len(given) > 0 {
		return []byte(given[0]), nil
	}
	data, err := io.ReadAll(io.LimitReader(c.InOrStdin(), maxAppend+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("standard input: %w", err)
	case len(data) > maxAppend:
		return nil, fmt.Errorf("standard input has more than %d bytes, the most for one append", maxAppend)
	}
	return data, nil
}

func streamRead(e *endpoints) *cobra.Command {
	var offset, partition string
	c := &cobra.Command{
		Use: "read NAME", Short: "Write what a stream has to standard output", Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error { return e.follow(c, given[0], offset, partition, false) },
	}
	c.Flags().StringVar(&offset, "offset", "-1", "offset to begin at; -1 is the beginning")
	c.Flags().StringVar(&partition, "partition", "", "partition of a topic that has several")
	return c
}

func streamTail(e *endpoints) *cobra.Command {
	var offset, partition string
	c := &cobra.Command{
		Use: "tail NAME", Short: "Write what is appended to standard output, until the stream is closed", Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error { return e.follow(c, given[0], offset, partition, true) },
	}
	c.Flags().StringVar(&offset, "offset", "now", "offset to begin at; now is the end, -1 the beginning")
	c.Flags().StringVar(&partition, "partition", "", "partition of a topic that has several")
	return c
}

// follow reads chunk after chunk: until the end, or, live, until the stream is closed.
func (e *endpoints) follow(c *cobra.Command, name, offset, partition string, live bool) error {
	query := url.Values{"offset": {offset}}
	if partition != "" {
		query.Set("partition", partition)
	}
	if live {
		query.Set("live", "long-poll")
	}
	for {
		answer, err := call(c.Context(), http.MethodGet, e.streamURL(name)+"?"+query.Encode(), nil, nil)
		if err != nil {
			if c.Context().Err() != nil {
				return nil
			}
			return err
		}
		_, err = io.Copy(c.OutOrStdout(), answer.Body)
		answer.Body.Close()
		if err != nil {
			return fmt.Errorf("after offset %s: %w", query.Get("offset"), err)
		}
		h := answer.Header
		if h.Get("Stream-Closed") == "true" || (!live && h.Get("Stream-Up-To-Date") == "true") {
			return nil
		}
		next := h.Get("Stream-Next-Offset")
		if next == "" {
			return errors.New("the answer has no Stream-Next-Offset: is this a stream?")
		}
		query.Set("offset", next)
		if cursor := h.Get("Stream-Cursor"); cursor != "" {
			query.Set("cursor", cursor)
		}
	}
}

func streamHead(e *endpoints) *cobra.Command {
	return &cobra.Command{
		Use: "head NAME", Short: "Show what a stream is and where it ends", Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			answer, err := call(c.Context(), http.MethodHead, e.streamURL(given[0]), nil, nil)
			if err != nil {
				return err
			}
			answer.Body.Close()
			for _, name := range []string{"Content-Type", "Stream-Next-Offset", "Stream-Closed", "Stream-Ttl", "Stream-Expires-At"} {
				if value := answer.Header.Get(name); value != "" {
					fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", name, value)
				}
			}
			return nil
		},
	}
}

func streamDelete(e *endpoints) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a stream and all its data", Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			answer, err := call(c.Context(), http.MethodDelete, e.streamURL(given[0]), nil, nil)
			if err != nil {
				return err
			}
			answer.Body.Close()
			fmt.Fprintf(c.OutOrStdout(), "deleted %s\n", given[0])
			return nil
		},
	}
}

func streamClose(e *endpoints) *cobra.Command {
	return &cobra.Command{
		Use: "close NAME", Short: "Close a stream: nothing can be appended any more", Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			answer, err := call(c.Context(), http.MethodPost, e.streamURL(given[0]), http.Header{"Stream-Closed": {"true"}}, nil)
			if err != nil {
				return err
			}
			answer.Body.Close()
			fmt.Fprintf(c.OutOrStdout(), "closed %s at offset %s\n", given[0], answer.Header.Get("Stream-Next-Offset"))
			return nil
		},
	}
}

func streamList(e *endpoints) *cobra.Command {
	var prefix string
	c := &cobra.Command{
		Use: "list", Short: "List streams and topics", Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			const page = 1000
			after := ""
			for {
				var rows []struct {
					Name    string `json:"name"`
					Buckets int    `json:"buckets"`
				}
				query := url.Values{"prefix": {prefix}, "after": {after}, "limit": {fmt.Sprint(page)}}
				if err := getJSON(c.Context(), e.adminURL("/admin/streams?"+query.Encode()), &rows); err != nil {
					return err
				}
				for _, row := range rows {
					fmt.Fprintf(c.OutOrStdout(), "%s\t%d\n", row.Name, row.Buckets)
					after = row.Name
				}
				if len(rows) < page {
					return nil
				}
			}
		},
	}
	c.Flags().StringVar(&prefix, "prefix", "", "only names that begin with this")
	return c
}
