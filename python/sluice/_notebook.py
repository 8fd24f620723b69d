"""Objects as notebooks show them."""

import html

# Pages above this size would make a notebook slow to open.
MAX_PAGE_BYTES = 4 << 20


def page(session):
    """Returns the report of a session in a frame of its own, or its summary if it is large."""
    text = session.report_html()
    if len(text) > MAX_PAGE_BYTES:
        return f"<pre>{html.escape(session.summary())}</pre>"
    return (f'<iframe srcdoc="{html.escape(text)}" width="100%" height="600" '
            'style="border: 0"></iframe>')
