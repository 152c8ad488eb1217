"""What no page of the console may contain as it is."""

import re

HOSTILE_TEXT = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}"
INLINE_CODE = re.compile(r"<script(?![^>]*\bsrc=)|<[^>]*\s(on\w+|style)=|<style|javascript:")
